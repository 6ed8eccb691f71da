import stringWidth from 'string-width';

/** Returns the width of a string in columns; by default its length. */
export type Measure = (text: string) => number;

const byLength: Measure = (text) => text.length;

/**
 * Breaks text into lines of at most `width` columns: at spaces, and within a word that is longer than a line.
 * Continuation lines begin with `indent`.
 */
export function wrapped(text: string, width: number, indent = '', measure = byLength): string {
  const lines = text.split('\n');
  return lines.map((line) => wrappedLine(line, width, indent, measure)).join('\n');
}

function wrappedLine(line: string, width: number, indent: string, measure: Measure): string {
  const lines: string[] = [];
  let start = '';
  let rest = line;
  while (measure(start + rest) > width) {
    const part = head(rest, width - start.length, measure) || (/^./su.exec(rest)?.[0] ?? '');
    const blank = rest[part.length] === ' ' ? part.length : part.lastIndexOf(' ');
    const isInWord = part.slice(0, Math.max(blank, 0)).trim() === '';
    const end = isInWord ? part.length : blank;
    lines.push(start + rest.slice(0, end).trimEnd());
    rest = rest.slice(end).replace(/^ +/, '');
    start = indent;
  }
  return [...lines, start + rest].join('\n');
}

/** Returns the beginning of a string that fits into `width` columns. */
export function head(text: string, width: number, measure: Measure): string {
  let kept = '';
  for (const character of text) {
    if (measure(kept + character) > width) break;
    kept += character;
  }
  return kept;
}

/**
 * Wraps a command into lines of at most `width` columns that a POSIX shell still reads as one command: each line but
 * the last ends with a backslash. A flag stays with its value, a comment moves to separate lines before the command,
 * and only a word longer than a line is broken.
 */
export function wrappedCommand(command: string, width: number, indent: string): string {
  if (command.length <= width) return command;
  const start = /^ */.exec(command)?.[0] ?? '';
  const at = commentStart(command);
  if (at !== -1) {
    const comment = wrapped(start + command.slice(at), width - 2, start).replaceAll(
      `\n${start}`,
      `\n${start}# `,
    );
    const rest = command.slice(0, at).trimEnd();
    return rest === '' ? comment : `${comment}\n${wrappedCommand(rest, width, indent)}`;
  }
  const words = command.trim().match(/(?:--?[a-z][\w-]* (?![-|>]))?(?:"[^"]*"|'[^']*'|[^\s"'])+/g) ?? [];
  return commandOf(words, width, start, indent);
}

// Returns the index of a shell comment, or -1. A hash inside a word or quotes is not a comment.
function commentStart(command: string): number {
  const unquoted = command.replace(/"[^"]*"|'[^']*'/g, (quoted) => '_'.repeat(quoted.length));
  return unquoted.search(/(?<=^|\s)#(?=\s)/);
}

/** Like {@link wrappedCommand}, for words that are quoted for a shell; the text begins with `start`. */
export function commandOf(words: readonly string[], width: number, start: string, indent: string): string {
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
  return wrapped([...lines, current].join('\n'), width, indent);
}

// Latin letters and English punctuation, one column each. Other characters need a segmenter and the emoji data of
// Unicode, which take longer to load than a short command takes to run.
const narrow = /^[ -~\u00a1-\u00ac\u00ae-\u024f\u2010-\u2015\u2018-\u201f\u2022\u2026]*$/;

/** Returns the width of a string in columns of a terminal. */
export function widthOf(text: string): number {
  return narrow.test(text) ? text.length : stringWidth(text);
}

/** Cuts a line to `width` columns, and marks a cut with `…`. */
export function cutToWidth(line: string, width: number): string {
  return widthOf(line) <= width ? line : `${head(line, width - 1, widthOf)}…`;
}
