import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { RegExpParser, visitRegExpAST, type AST } from '@eslint-community/regexpp';
import { parseSync, Visitor } from 'rolldown/utils';
import type { Unit } from './growth.ts';

/** A regular expression in the source, and its location. */
export interface Pattern {
  place: string;
  pattern: RegExp;
}

/** Returns every regular expression in the TypeScript files below a folder. */
export function patternsIn(folder: string): Pattern[] {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  );
  return files.flatMap((name) => {
    const text = readFileSync(join(folder, name), 'utf8');
    const found: Pattern[] = [];
    const visitor = new Visitor({
      Literal: (literal) => {
        if (!('regex' in literal)) return;
        const { pattern, flags } = literal.regex;
        const line = text.slice(0, literal.start).split('\n').length;
        found.push({ place: `${name}:${line} /${pattern}/${flags}`, pattern: new RegExp(pattern, flags) });
      },
    });
    visitor.visit(parseSync(name, text).program);
    return found;
  });
}

/**
 * Returns texts that may be slow for a pattern to match. Each repeats a prefix of a matching text, or that prefix's
 * last character, and ends with a character that does not match.
 */
export function hostileUnits({ source, flags }: RegExp): Unit[] {
  const tree = new RegExpParser().parsePattern(source, 0, source.length, {
    unicode: flags.includes('u'),
    unicodeSets: flags.includes('v'),
  });
  const widest = Math.max(...alternativesIn(tree));
  const matches = new Set(Array.from({ length: widest }, (_, choice) => textOf(tree.alternatives, choice)));
  const units = new Map<string, Unit>();
  const add = (unit: Unit): unknown => units.set(JSON.stringify(unit), unit);
  for (const match of matches) {
    for (let end = 1; end <= Math.min(match.length, 40); end += 1) {
      const head = match.slice(0, end);
      add({ pump: head, tail: '\u{1}' });
      add({ head: head.slice(0, -1), pump: head.slice(-1), tail: '\u{1}' });
    }
  }
  return [...units.values()];
}

function alternativesIn(tree: AST.Pattern): number[] {
  const counts: number[] = [tree.alternatives.length];
  visitRegExpAST(tree, {
    onGroupEnter: ({ alternatives }) => counts.push(alternatives.length),
    onCapturingGroupEnter: ({ alternatives }) => counts.push(alternatives.length),
  });
  return counts;
}

// Returns a short text that matches, if assertions allow it. `choice` selects the alternative.
function textOf(alternatives: readonly AST.Alternative[], choice: number): string {
  const alternative = alternatives[choice % alternatives.length];
  return (alternative?.elements ?? []).map((element) => elementText(element, choice)).join('');
}

function elementText(element: AST.Element, choice: number): string {
  if (element.type === 'Character') return String.fromCodePoint(element.value);
  if (element.type === 'Quantifier')
    return elementText(element.element, choice).repeat(Math.min(Math.max(1, element.min), 3));
  if (element.type === 'Group' || element.type === 'CapturingGroup')
    return textOf(element.alternatives, choice);
  return element.type === 'CharacterClass' || element.type === 'CharacterSet' ? memberOf(element) : '';
}

const candidates = Array.from(' a0A_-./:"\'\\<>=&#%@,;\n\t\r()[]{}!?+*|~^$`é中\u{2028}\u{1b}\u{202e}');

function memberOf(set: { raw: string }): string {
  const test = new RegExp(`^${set.raw}$`, 'u');
  return candidates.find((character) => test.test(character)) ?? '';
}
