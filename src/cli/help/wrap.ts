import stringWidth from 'string-width';

/** Returns a string's width, in columns. */
export type Measure = (text: string) => number;

const byLength: Measure = (text) => text.length;

/**
 * Breaks text into lines of at most `width` columns: at spaces, or within a word that is longer than a line.
 * Continuation lines begin with `indent`.
 */
export function wrap(text: string, width: number, indent = '', measure = byLength): string {
  const lines = text.split('\n');
  return lines.map((line) => wrapLine(line, width, indent, measure)).join('\n');
}

function wrapLine(line: string, width: number, indent: string, measure: Measure): string {
  const lines: string[] = [];
  let start = '';
  let remaining = line;
  while (measure(start + remaining) > width) {
    const part =
      fittingPrefix(remaining, width - start.length, measure) || (/^./su.exec(remaining)?.[0] ?? '');
    const blank = remaining[part.length] === ' ' ? part.length : part.lastIndexOf(' ');
    const isInWord = part.slice(0, Math.max(blank, 0)).trim() === '';
    const end = isInWord ? part.length : blank;
    lines.push(start + remaining.slice(0, end).trimEnd());
    remaining = remaining.slice(end).replace(/^ +/, '');
    start = indent;
  }
  return [...lines, start + remaining].join('\n');
}

/** Returns the beginning of a string that fits in `width` columns. */
export function fittingPrefix(text: string, width: number, measure: Measure): string {
  let prefix = '';
  for (const character of text) {
    if (measure(prefix + character) > width) break;
    prefix += character;
  }
  return prefix;
}

/**
 * Wraps a command into lines of at most `width` columns. Each line but the last ends with a backslash, so a POSIX shell
 * reads the lines as one command. Keeps a flag and its value on one line. Moves a comment to separate lines before the
 * command. Breaks a word only if the word is longer than a line.
 */
export function wrapCommand(command: string, width: number, indent: string): string {
  if (command.length <= width) return command;
  const start = /^ */.exec(command)?.[0] ?? '';
  const commentIndex = commentStart(command);
  if (commentIndex !== -1) {
    const comment = wrap(start + command.slice(commentIndex), width - 2, start).replaceAll(
      `\n${start}`,
      `\n${start}# `,
    );
    const withoutComment = command.slice(0, commentIndex).trimEnd();
    return withoutComment === '' ? comment : `${comment}\n${wrapCommand(withoutComment, width, indent)}`;
  }
  const words = command.trim().match(/(?:--?[a-z][\w-]* (?![-|>]))?(?:"[^"]*"|'[^']*'|[^\s"'])+/g) ?? [];
  return wrapWords(words, width, start, indent);
}

// Returns the index of a shell comment, or -1. A hash inside a word or quotes is not a comment.
function commentStart(command: string): number {
  const unquoted = command.replace(/"[^"]*"|'[^']*'/g, (quoted) => '_'.repeat(quoted.length));
  return unquoted.search(/(?<=^|\s)#(?=\s)/);
}

/** Joins shell-quoted words into a command that begins with `start`, and wraps the command like {@link wrapCommand}. */
export function wrapWords(words: readonly string[], width: number, start: string, indent: string): string {
  const lines: string[] = [];
  let current = '';
  for (const word of words) {
    if (current === '') current = start + word;
    else if (current.length + word.length + 3 <= width) current += ` ${word}`;
    else {
      lines.push(`${current} \\`);
      current = indent + word;
    }
  }
  return wrap([...lines, current].join('\n'), width, indent);
}

// Matches Latin letters and English punctuation, which are one column wide each. Other characters need a segmenter and
// Unicode's emoji data, which take longer to load than a short command takes to run.
const narrowPattern = /^[ -~\u00a1-\u00ac\u00ae-\u024f\u2010-\u2015\u2018-\u201f\u2022\u2026]*$/;

/** Returns a string's width, in terminal columns. */
export function widthOf(text: string): number {
  return narrowPattern.test(text) ? text.length : stringWidth(text);
}

/** Truncates a line to `width` columns, and marks the truncation with `…`. */
export function cutToWidth(line: string, width: number): string {
  return widthOf(line) <= width ? line : `${fittingPrefix(line, width - 1, widthOf)}…`;
}

/**
 * Puts a label of `columnWidth` columns before the first line, and wraps the lines next to it, so that the text has at
 * most `width` columns.
 */
export function withLabel(
  label: string,
  columnWidth: number,
  lines: readonly string[],
  width: number,
): string[] {
  const wrappedLines = lines.flatMap((line) =>
    wrap(line, Math.max(8, width - columnWidth), '', widthOf).split('\n'),
  );
  return wrappedLines.map((line, index) =>
    `${(index === 0 ? label : '').padEnd(columnWidth)}${line}`.trimEnd(),
  );
}
