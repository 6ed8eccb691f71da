import type { Screen } from './format.ts';
import { plain } from '../output/human.ts';
import { wrap, wrapCommand } from './wrap.ts';

type Block =
  | { kind: 'heading' | 'text' | 'item'; text: string }
  | { kind: 'code'; language: string; lines: string[] }
  | { kind: 'table'; rows: string[][] };

/**
 * Renders a Markdown page for a terminal, wrapped to its width. Supports the block types that the documentation uses.
 */
export function renderMarkdown(page: string, screen: Screen): string {
  let text = '';
  let previousKind: Block['kind'] | undefined;
  for (const block of blocksOf(page.split('\n'))) {
    if (previousKind !== undefined) text += previousKind === 'item' && block.kind === 'item' ? '\n' : '\n\n';
    text += renderBlock(block, screen);
    previousKind = block.kind;
  }
  return text;
}

/** Returns the rows of a page's first table without inline markup, header first. */
export function tableOf(page: string): string[][] {
  const table = [...blocksOf(page.split('\n'))].find((block) => block.kind === 'table');
  return table?.kind === 'table' ? table.rows.map((row) => row.map(withoutMarkup)) : [];
}

function* blocksOf(lines: readonly string[]): Generator<Block> {
  for (let at = 0; at < lines.length;) {
    const line = lines[at] ?? '';
    const isFence = line.startsWith('```');
    const ends = endOf(line);
    let end = at + 1;
    while (end < lines.length && !ends(lines[end] ?? '')) end += 1;
    const block = blockOf(line, lines.slice(at, end));
    if (block !== undefined) yield block;
    at = isFence ? end + 1 : end;
  }
}

function endOf(first: string): (line: string) => boolean {
  if (first.startsWith('```')) return (line) => line.startsWith('```');
  if (first.startsWith('|')) return (line) => !line.startsWith('|');
  if (first === '' || first.startsWith('#')) return () => true;
  return (line) => line === '' || /^(- |[#|]|```)/.test(line);
}

function blockOf(first: string, lines: string[]): Block | undefined {
  if (first === '') return undefined;
  if (first.startsWith('```')) return { kind: 'code', language: first.slice(3), lines: lines.slice(1) };
  if (first.startsWith('#')) return { kind: 'heading', text: first.replace(/^#+ /, '') };
  if (first.startsWith('|'))
    return { kind: 'table', rows: lines.filter((_, index) => index !== 1).map(cellsOf) };
  const text = lines.map((line) => line.trim()).join(' ');
  return first.startsWith('- ') ? { kind: 'item', text: text.slice(2) } : { kind: 'text', text };
}

function cellsOf(line: string): string[] {
  const cells = line
    .slice(1)
    .split(/(?<!\\)\|/)
    .slice(0, -1);
  return cells.map((cell) => cell.trim().replaceAll('\\|', '|'));
}

function renderBlock(block: Block, screen: Screen): string {
  const { width, paint } = screen;
  switch (block.kind) {
    case 'heading':
      return wrapMarkup(block.text, width, '', (line) => paint('bold', withoutMarkup(line)));
    case 'text':
      return wrapMarkup(block.text, width, '', (line) => styled(line, screen));
    case 'item':
      return wrapMarkup(`- ${block.text}`, width, '  ', (line) => styled(line, screen));
    case 'code':
      return block.lines.map((line) => codeLine(line, block.language, width)).join('\n');
    case 'table':
      return tableText(block.rows, screen);
  }
}

// Wraps a line of code so that a command can still be pasted into a shell.
function codeLine(line: string, language: string, width: number): string {
  const [space = ''] = /^ */.exec(line) ?? [];
  const comment = line.indexOf(' # ', space.length);
  // Moves the comment of a long YAML line to its own line, because the second line of a wrapped comment would not be a
  // comment.
  if (language === 'yaml' && comment !== -1 && line.length + 2 > width)
    return [space + line.slice(comment + 1), line.slice(0, comment).trimEnd()]
      .map((text) => codeLine(text, language, width))
      .join('\n');
  const isCommand = language === 'sh' || line.startsWith('$ ');
  const indent = `    ${/^ *(?:- )?/.exec(line)?.[0].replace('-', ' ') ?? ''}`;
  return isCommand ? wrapCommand(`  ${line}`, width, `  ${indent}`) : wrap(`  ${line}`, width, indent);
}

// Markup takes up no columns and may span lines, so it is applied word by word.
function wrapMarkup(text: string, width: number, indent: string, paint: (line: string) => string): string {
  return paint(wrap(markEachWord(text), width, indent, (line) => withoutMarkup(line).length));
}

function markEachWord(text: string): string {
  const perWord = (mark: string) => (_: string, inner: string) =>
    inner
      .split(' ')
      .map((word) => `${mark}${word}${mark}`)
      .join(' ');
  return withoutLinks(text)
    .replace(/`([^`]+)`/g, perWord('`'))
    .replace(/\*\*([^*]+)\*\*/g, perWord('**'));
}

function styled(text: string, { paint }: Pick<Screen, 'paint'>): string {
  return text
    .replace(/`([^`]+)`/g, (_, code: string) => paint('cyan', code))
    .replace(/\*\*([^*]+)\*\*/g, (_, bold: string) => paint('bold', bold));
}

function withoutMarkup(text: string): string {
  return styled(withoutLinks(text), { paint: plain });
}

function withoutLinks(text: string): string {
  return text.replace(/\[([^\][]+)\]\([^()]+\)/g, '$1');
}

const gap = 2;
const minColumn = 14;

function tableText(rows: string[][], screen: Screen): string {
  const columns = rows[0]?.length ?? 0;
  const widest = (measure: (cell: string) => number): number[] =>
    Array.from({ length: columns }, (_, column) =>
      Math.max(...rows.map((row) => measure(withoutMarkup(row[column] ?? '')))),
    );
  const wordWidths = widest((cell) => Math.max(...cell.split(' ').map(({ length }) => length)));
  const widths = columnWidths(
    widest(({ length }) => length),
    wordWidths.map((width) => Math.max(width, minColumn)),
    screen.width - gap * (columns - 1),
  );
  return widths === undefined
    ? records(rows, screen)
    : rows.map((row, index) => rowText(row, widths, index, screen)).join('\n');
}

// Shrinks the widest columns. Returns undefined if one would become narrower than its minimum.
function columnWidths(naturalWidths: number[], minWidths: number[], maxWidth: number): number[] | undefined {
  const widths = [...naturalWidths];
  while (widths.reduce((sum, width) => sum + width, 0) > maxWidth) {
    const shrinkable = widths.map((width, column) => (width > (minWidths[column] ?? 0) ? width : 0));
    const column = shrinkable.indexOf(Math.max(...shrinkable));
    if (shrinkable[column] === 0) return undefined;
    widths[column] = (widths[column] ?? 0) - 1;
  }
  return widths;
}

function rowText(row: string[], widths: number[], index: number, screen: Screen): string {
  const cells = row.map((cell, column) => {
    return wrapMarkup(cell, widths[column] ?? 1, '', (text) => text).split('\n');
  });
  const height = Math.max(...cells.map((cell) => cell.length));
  return Array.from({ length: height }, (_, at) => {
    const parts = cells.map((cell, column) => {
      const part = cell[at] ?? '';
      const partText = index === 0 ? screen.paint('bold', withoutMarkup(part)) : styled(part, screen);
      const isLast = column === cells.length - 1;
      return isLast
        ? partText
        : partText + ' '.repeat((widths[column] ?? 0) - withoutMarkup(part).length + gap);
    });
    return parts.join('').trimEnd();
  }).join('\n');
}

// Formats rows for a narrow screen: each row's first cell, and below it the other cells with their column headers.
function records([head = [], ...rows]: string[][], screen: Screen): string {
  const entry = (row: string[]): string => {
    const others = row
      .slice(1)
      .flatMap((cell, index) =>
        cell === '' ? [] : [`${head.length > 2 ? `${head[index + 1] ?? ''}: ` : ''}${cell}`],
      );
    const first = wrapMarkup(row[0] ?? '', screen.width, '', (text) => styled(text, screen));
    return [
      first,
      ...others.map((text) =>
        wrapMarkup(`    ${text}`, screen.width, '    ', (part) => styled(part, screen)),
      ),
    ].join('\n');
  };
  return rows.map(entry).join('\n');
}
