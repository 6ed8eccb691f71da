/** How many columns a text takes; its length, where nothing else is known of it. */
export type Measure = (text: string) => number;

const byLength: Measure = (text) => text.length;

/**
 * A text in lines of at most `width` columns: broken at blanks, and within a word where the word alone is too long. The
 * lines that a line is broken into begin with `indent`, but for the first.
 */
export function wrapped(text: string, width: number, indent = '', measure = byLength): string {
  const lines = text.split('\n');
  return lines.map((line) => wrappedLine(line, width, indent, measure)).join('\n');
}

function wrappedLine(line: string, width: number, indent: string, measure: Measure): string {
  if (measure(line) <= width) return line;
  const lines: string[] = [];
  let current = '';
  let start = /^ */.exec(line)?.[0] ?? '';
  for (const word of line.trim().split(/ +/)) {
    if (current !== '' && measure(`${current} ${word}`) <= width) {
      current += ` ${word}`;
      continue;
    }
    if (current !== '') {
      lines.push(current);
      start = indent;
    }
    const pieces = cut(word, Math.max(width - start.length, 2), measure);
    lines.push(...pieces.slice(0, -1).map((piece) => start + piece));
    current = start + (pieces.at(-1) ?? '');
  }
  return [...lines, current].join('\n');
}

function cut(word: string, width: number, measure: Measure): string[] {
  const pieces: string[] = [];
  let piece = '';
  for (const character of word) {
    if (measure(piece + character) > width) {
      pieces.push(piece);
      piece = '';
    }
    piece += character;
  }
  return [...pieces, piece];
}

/**
 * A command in lines of at most `width` columns that a POSIX shell still takes as one: each but the last ends with a
 * backslash. A flag stays with its value. Only a word that is longer
 * than a line is broken.
 */
export function wrappedCommand(command: string, width: number, indent: string): string {
  if (command.length <= width) return command;
  const start = /^ */.exec(command)?.[0] ?? '';
  const words = command.trim().match(/(?:--?[a-z][\w-]* (?![-|>]))?(?:"[^"]*"|'[^']*'|[^\s"'])+/g) ?? [];
  return commandOf(words, width, start, indent);
}

/** {@link wrappedCommand} of words as a shell takes them; it begins with `start`. */
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
