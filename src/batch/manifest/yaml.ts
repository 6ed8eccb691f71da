import {
  isAlias,
  isMap,
  isScalar,
  isNode,
  isSeq,
  LineCounter,
  parseDocument,
  visit,
  type Document,
  type Node,
  type Scalar,
} from 'yaml';
import type { Json, JsonObject } from '../../json.ts';
import { printableLine } from '../../printable.ts';
import { fieldName, isPath } from './fields.ts';
import { maxFields, type ManifestRecord, type Problem, type WrittenField } from './fields.ts';
import { Unreadable } from './source.ts';

/** A YAML manifest, parsed as a whole. */
export interface YamlManifest {
  /** The members except defaults, matrix and rows. */
  head: readonly WrittenField[];
  defaults: readonly WrittenField[];
  /** Yields the rows or their problems, then the matrix product, in which the last list varies fastest. */
  records: () => Iterable<ManifestRecord | Problem>;
}

/** The maximum file size, in bytes. The syntax tree takes a hundred times as much memory as the text. */
export const maxYamlBytes = 2 * 1024 * 1024;

const maxProducts = 1_000_000;
const maxDepth = 32;
const maxNodes = 100_000;
/** The maximum number of nodes in all rows together, including nodes that aliases repeat. */
const maxTotalNodes = 1_000_000;

/**
 * Parses a YAML 1.2 manifest. An unquoted scalar keeps its written form, so version 2.0 remains 2.0. Throws the last
 * problem, and reports all earlier problems.
 * @throws Unreadable if the text is not valid YAML or not a manifest.
 */
export function readYaml(text: string, report: (problem: Problem) => void): YamlManifest {
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter, prettyErrors: false, uniqueKeys: false });
  const problems = [...document.errors, ...document.warnings].map(({ message, pos }) => ({
    line: lineCounter.linePos(pos[0]).line,
    message: /call stack/.test(message)
      ? 'the lists or maps are nested too deeply'
      : `invalid YAML: ${printableLine(message, 200)}`,
  }));
  for (const problem of problems.slice(0, -1)) report(problem);
  const last = problems.at(-1);
  if (last !== undefined) throw new Unreadable(last);
  return new Tree(document, lineCounter).manifest();
}

type Entry = { name: string; line: number; node: Node | null };

class Tree {
  readonly #document: Document.Parsed;
  readonly #lines: LineCounter;
  readonly #targets: ReadonlyMap<Node, Node>;
  #nodes = 0;
  #totalNodes = 0;

  constructor(document: Document.Parsed, lines: LineCounter) {
    this.#document = document;
    this.#targets = targetsOf(document);
    this.#lines = lines;
  }

  manifest(): YamlManifest {
    const entries = this.#entries(
      this.#document.contents,
      1,
      'the file is not a map that contains rows or a matrix',
    );
    const findEntry = (name: string): Entry | undefined => entries.find((entry) => entry.name === name);
    const [defaults, rows, matrix] = [findEntry('defaults'), findEntry('rows'), findEntry('matrix')];
    const head = entries.filter((entry) => ![defaults, rows, matrix].includes(entry));
    const readRows = rows && this.#rowsOf(rows);
    const lists = matrix && this.#lists(matrix);
    return {
      head: head.map((entry) => this.#field(entry)),
      defaults:
        defaults === undefined ? [] : this.#fields(defaults.node, defaults.line, 'defaults is not a map'),
      records: function* () {
        if (readRows === undefined && lists === undefined)
          yield { line: 1, message: 'the file has neither rows nor a matrix' };
        if (readRows !== undefined) yield* readRows();
        if (lists !== undefined) yield* products(lists, matrix?.line ?? 1);
      },
    };
  }

  #rowsOf({ node, line }: Entry): () => Generator<ManifestRecord | Problem> {
    const list = this.#resolved(node);
    if (!isSeq(list)) throw unreadable(line, 'rows is not a list');
    return () => this.#rows(list.items as Node[], line);
  }

  // Yields one row at a time, because aliases may repeat a large row thousands of times.
  *#rows(items: readonly Node[], line: number): Generator<ManifestRecord | Problem> {
    this.#totalNodes = 0;
    for (const item of items) {
      const at = this.#lineOf(item, line);
      this.#nodes = 0;
      try {
        yield { line: at, fields: this.#fields(item, at, 'the row is not a map of fields') };
      } catch (error) {
        if (!(error instanceof Unreadable)) throw error;
        yield error.problem;
      }
      this.#totalNodes += this.#nodes;
      if (this.#totalNodes > maxTotalNodes)
        throw unreadable(at, 'with its aliases expanded, the file is too large. The rest was not read');
    }
  }

  #lists({ node, line }: Entry): WrittenField[][] {
    const lists = this.#entries(node, line, 'matrix is not a map of lists').map((entry) => {
      const list = this.#resolved(entry.node);
      if (!isSeq(list) || list.items.length === 0)
        throw unreadable(
          entry.line,
          `matrix.${printableLine(entry.name, 60)} is not a list with at least one entry`,
        );
      return (list.items as Node[]).map((item) =>
        this.#field({ name: entry.name, line: this.#lineOf(item, entry.line), node: item }),
      );
    });
    const count = lists.reduce((product, { length }) => product * length, 1);
    if (lists.length === 0 || count > maxProducts)
      throw unreadable(
        line,
        `matrix produces ${lists.length === 0 ? 'no' : count} rows; allowed: 1 to ${maxProducts}`,
      );
    return lists;
  }

  #fields(node: Node | null, line: number, message: string): WrittenField[] {
    const entries = this.#entries(node, line, message);
    this.#nodes += entries.length;
    if (entries.length > maxFields)
      throw unreadable(this.#lineOf(node, line), `it has ${entries.length} fields; allowed: ${maxFields}`);
    return entries.map((entry) => this.#field(entry));
  }

  // In a request body, a number remains a number. Elsewhere, it becomes the text of a flag.
  #field({ name, line, node }: Entry): WrittenField {
    const isBody = isPath(name) || fieldName(name) === 'body';
    return { name, line, value: this.#value(node, line, isBody ? numberIn : textIn, 0) };
  }

  #entries(node: Node | null, line: number, message: string): Entry[] {
    const map = this.#resolved(node);
    if (!isMap(map)) throw unreadable(this.#lineOf(node, line), message);
    const names = new Set<string>();
    return map.items.map(({ key, value }) => {
      const at = this.#lineOf(key as Node, line);
      if (!isScalar(key)) throw unreadable(at, 'a field name is not text');
      const name = typeof key.value === 'string' ? key.value : (key.source ?? '');
      if (names.has(name)) throw unreadable(at, `duplicate field ${printableLine(name, 60)}`);
      names.add(name);
      return { name, line: at, node: value as Node | null };
    });
  }

  #value(source: Node | null, line: number, scalar: (node: Scalar) => Json, depth: number): Json {
    const node = this.#resolved(source);
    const at = this.#lineOf(source, line);
    this.#nodes += 1;
    if (depth > maxDepth || this.#nodes > maxNodes)
      throw unreadable(at, 'the value is nested too deeply or too large');
    if (isSeq(node)) return (node.items as Node[]).map((item) => this.#value(item, at, scalar, depth + 1));
    if (isMap(node)) return this.#object(node, at, scalar, depth);
    if (!isScalar(node)) return null;
    try {
      return scalar(node);
    } catch (error) {
      throw unreadable(at, (error as Error).message);
    }
  }

  #object(node: Node, line: number, scalar: (node: Scalar) => Json, depth: number): JsonObject {
    const object: JsonObject = {};
    for (const entry of this.#entries(node, line, '')) {
      if (entry.name === '__proto__') throw unreadable(entry.line, 'the name __proto__ is not allowed');
      object[entry.name] = this.#value(entry.node, entry.line, scalar, depth + 1);
    }
    return object;
  }

  #resolved(node: Node | null): Node | null {
    return isAlias(node) ? (this.#targets.get(node) ?? null) : node;
  }

  #lineOf(node: Node | null, fallback: number): number {
    return node?.range ? this.#lines.linePos(node.range[0]).line : fallback;
  }
}

// Resolves aliases in one pass, because the library searches the whole document for each alias.
function targetsOf(document: Document.Parsed): Map<Node, Node> {
  const anchors = new Map<string, Node>();
  const targets = new Map<Node, Node>();
  visit(document, (_, node) => {
    if (isAlias(node)) {
      const target = anchors.get(node.source);
      if (target !== undefined) targets.set(node, target);
    } else if (isNode(node) && node.anchor !== undefined) anchors.set(node.anchor, node);
  });
  return targets;
}

function textIn({ value, source }: Scalar): Json {
  if (typeof value === 'string' || typeof value === 'boolean' || value === null) return value;
  return source ?? '';
}

function numberIn(node: Scalar): Json {
  const { value } = node;
  if (typeof value !== 'number') return textIn(node);
  if (Number.isInteger(value) ? Number.isSafeInteger(value) : Number.isFinite(value)) return value;
  throw new Error(
    `the number ${printableLine(node.source ?? '', 40)} would lose precision; quote it to send it as text`,
  );
}

function* products(
  lists: readonly WrittenField[][],
  line: number,
  fields: WrittenField[] = [],
): Generator<ManifestRecord> {
  const [list, ...others] = lists;
  if (list === undefined) yield { line, fields };
  else for (const field of list) yield* products(others, line, [...fields, field]);
}

function unreadable(line: number, message: string): Unreadable {
  return new Unreadable({ line, message });
}
