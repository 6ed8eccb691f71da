import { MgwError, messageOf, usageError } from '../errors.ts';
import { add, zero, type Decimal } from '../decimal.ts';
import { checkNoSecret } from '../jobs/order.ts';
import { pathExists, pathsAt, sameFileName, type OutputPlace } from '../jobs/output.ts';
import { type ChainDeps, Chains } from './chains.ts';
import { maxProblems, type Manifest } from './manifest/manifest.ts';
import { type ManifestRecord, type Problem, problemText } from './manifest/fields.ts';
import type { Row } from './manifest/row.ts';
import { isStillDone, rememberRow, type DoneRow, type DoneRowCache } from './done-row-cache.ts';
import {
  named,
  type NamedRow,
  type PlannedRow,
  countOf,
  modelOf,
  type Work,
  rowStates,
  type RowState,
  type RowStatus,
} from './planned-row.ts';
import { RowGraph } from './row-graph.ts';
import { rowStatusOf } from './row-state.ts';

/** The dependencies of a plan. */
export interface PlanDeps extends ChainDeps {
  /** Removes the API key from a string. */
  redact: (text: string) => string;
  /** Returns the maximum cost of a row; undefined if it is unknown. */
  costOf: (work: Work) => Decimal | undefined;
  /** The cache of done rows, if done rows only need to be counted. */
  known?: DoneRowCache | undefined;
  /** The state of a row. If absent, it is read from the ledger. */
  statusOf?: (row: NamedRow) => RowStatus;
}

/** An opened batch. */
export interface Batch {
  manifest: Manifest;
  name: string;
  place: OutputPlace;
  /** Replaces existing output files. */
  force: boolean;
  /** Real paths of the folders below which its rows may name files. */
  readable: readonly string[];
  /** The folder that relative paths of those files start from; the current folder if absent. */
  filesFrom?: string;
}

/** The rows of one model that are still to be paid for. */
export interface ModelCost {
  rows: number;
  /** The sum of the known costs. */
  known: Decimal;
  /** Rows without a known price. */
  unknown: number;
}

/** A plan: the actions of a run, and their maximum cost. */
export interface Plan {
  rows: number;
  counts: Record<RowState, number>;
  /** The problems, in the order of the file; the first ten thousand of them. */
  problems: Problem[];
  /** The number of invalid rows. */
  bad: number;
  /** The number of done rows that were found in the cache. */
  known: number;
  /** Rows with the same request as an earlier row but another name: both are paid for. */
  repeated: Problem[];
  /** Which rows wait for which. */
  chains: Chains;
  /** The maximum cost of the rows to be paid for, by model. */
  costs: Map<string, ModelCost>;
}

/** Receives the valid rows of a plan as they are read. */
export type UseRow = (planned: PlannedRow) => Promise<void> | void;

/**
 * Reads a manifest once, checks every row, and determines its state. Sends and writes nothing.
 * @param take receives each valid row that is not known to be done. Rows that wait for others come last.
 * @throws MgwError if the manifest or the ledger cannot be read.
 */
export async function planBatch(batch: Batch, deps: PlanDeps, take: UseRow = () => undefined): Promise<Plan> {
  const graph = await RowGraph.read(batch.manifest, batch.name);
  const planning = new Planning(batch, deps, new Chains(graph));
  const waiting = new Map<number, Row>();
  for await (const item of batch.manifest.items((record) => planning.isKnown(record))) {
    if ('problems' in item) planning.refuse(item.problems, item.isRow);
    else if (graph.waitsFor(item.row).length > 0) waiting.set(item.row.index, item.row);
    else {
      const { row, record } = item;
      // Do not cache a row with `over`: its content does not show whether the row that it names exists.
      const mark = row.over === undefined ? deps.known?.contentHash(record) : undefined;
      const planned = await planning.row(row, mark);
      if (planned !== undefined) await take(planned);
    }
  }
  for (const index of graph.order) {
    const row = waiting.get(index);
    const planned = row && (await planning.row(row));
    if (planned !== undefined) await take(planned);
  }
  deps.known?.write();
  const { plan } = planning;
  if (waiting.size > 0) plan.problems.sort((one, other) => one.line - other.line);
  plan.rows = Object.values(plan.counts).reduce((sum, count) => sum + count, plan.bad);
  return plan;
}

/**
 * Returns the current state of a row, regardless of an earlier plan.
 * @param chains the rows that it waits for; absent if it waits for none
 * @throws MgwError('usage') if it is invalid.
 */
export async function planRow(
  row: Row,
  { name, place }: Batch,
  deps: PlanDeps,
  chains?: Chains,
): Promise<PlannedRow> {
  const found = named(row, await deps.workOf(row, chains?.placeholders(row)), name, place);
  return chains === undefined
    ? { ...found, ...(await rowStatusOf(found, deps)) }
    : chains.planned(found, deps);
}

/** One pass through a manifest. Keeps what later rows need to know about earlier ones. */
class Planning {
  readonly plan: Plan;
  readonly #batch: Batch;
  readonly #deps: PlanDeps;
  /** The line of each id, path and request so far. */
  readonly #ids = new Map<string, number>();
  readonly #paths = new Map<string, number>();
  readonly #hashes = new Map<string, number>();
  /** The texts of reported problems: a wrong value in a matrix affects many rows, but is reported once. */
  readonly #told = new Set<string>();
  #badLine = 0;

  constructor(batch: Batch, deps: PlanDeps, chains: Chains) {
    this.#batch = batch;
    this.#deps = deps;
    this.plan = {
      rows: 0,
      counts: Object.fromEntries(rowStates.map((state) => [state, 0])) as Plan['counts'],
      problems: [],
      bad: 0,
      known: 0,
      repeated: [],
      chains,
      costs: new Map(),
    };
  }

  /** Adds the problems of a row, or of lines that are not rows. */
  refuse(problems: readonly Problem[], isRow = true): void {
    const lines = problems.filter(({ line }) => line !== this.#badLine);
    this.plan.bad += isRow ? 1 : lines.length;
    for (const problem of problems) {
      this.#badLine = problem.line;
      if (this.plan.problems.length >= maxProblems) continue;
      const text = problemText('', problem);
      if (!this.#told.has(text)) this.plan.problems.push(problem);
      this.#told.add(text);
    }
  }

  /** Whether a row is cached and still done. Counts such a row. */
  async isKnown(record: ManifestRecord): Promise<boolean> {
    const { known, ledger } = this.#deps;
    const found = known?.find(known.contentHash(record));
    // Rows that wait for it need its job.
    if (found === undefined || this.plan.chains.graph.isNeeded(found.id)) return false;
    if (!(await isStillDone(found, `${this.#batch.name}/${found.id}`, ledger))) return false;
    if (this.#isAlone(found, record.line)) {
      this.plan.counts.done += 1;
      this.plan.known += 1;
    }
    return true;
  }

  /** Returns the row with its state; undefined if it is invalid. `mark` is its key in the cache. */
  async row(row: Row, mark?: string): Promise<PlannedRow | undefined> {
    const work = await this.#workOf(row);
    const named = work && this.#named(row, work);
    if (named === undefined) return undefined;
    const found = { ...named, mark };
    const planned = await this.#orRefused(row, () => this.#stateOf(found));
    if (planned === undefined || planned.state !== 'new' || this.#isFree(planned))
      return planned && this.#counted(planned);
    // The existing file may belong to this row: another process may have just finished it.
    const again = await this.#stateOf(found);
    if (again.state !== 'new') return this.#counted(again);
    const message = `${found.path} already exists; --force replaces it`;
    this.refuse([{ line: row.line, field: 'output', message }]);
    return undefined;
  }

  async #stateOf(found: NamedRow): Promise<PlannedRow> {
    const { statusOf } = this.#deps;
    const { chains } = this.plan;
    if (statusOf === undefined) return chains.planned(found, this.#deps);
    return { ...found, ...statusOf(found), waitsFor: chains.graph.waitsFor(found.row) };
  }

  #workOf(row: Row): Promise<Work | undefined> {
    const { graph } = this.plan.chains;
    return this.#orRefused(row, () => {
      const fault = graph.cycleOf(row.index) ?? graph.overFaultOf(row);
      if (fault !== undefined) throw usageError(fault);
      return this.#deps.workOf(row, this.plan.chains.placeholders(row));
    });
  }

  async #orRefused<T>({ line }: Row, find: () => Promise<T>): Promise<T | undefined> {
    try {
      return await find();
    } catch (error) {
      if (!(error instanceof MgwError) || error.code !== 'usage') throw error;
      this.refuse(error.message.split('\n').map((message) => ({ line, message: asField(message) })));
      return undefined;
    }
  }

  #named(row: Row, work: Work): NamedRow | undefined {
    try {
      const found = named(row, work, this.#batch.name, this.#batch.place);
      checkNoSecret('the path', found.path, this.#deps.redact);
      return this.#isAlone({ ...found, isNamed: row.id !== undefined }, row.line) ? found : undefined;
    } catch (error) {
      if (!(error instanceof MgwError) || error.code !== 'usage') throw error;
      this.refuse([{ line: row.line, field: 'output', message: messageOf(error) }]);
      return undefined;
    }
  }

  #isAlone(
    { id, isNamed, hash, path }: Pick<DoneRow, 'id' | 'isNamed' | 'hash' | 'path'>,
    line: number,
  ): boolean {
    const [same, sameId, samePath] = [
      first(this.#hashes, hash, line),
      first(this.#ids, id, line),
      first(this.#paths, sameFileName(path), line),
    ];
    if (sameId !== undefined) {
      const message = isNamed
        ? `duplicate id "${id}" (also on line ${sameId})`
        : `same request as line ${sameId}; to make it twice, give each row its own id`;
      this.refuse([{ line, field: isNamed ? 'id' : undefined, message }]);
      return false;
    }
    if (samePath !== undefined) {
      this.refuse([{ line, field: 'output', message: `${path} is also the output of line ${samePath}` }]);
      return false;
    }
    if (same !== undefined)
      this.plan.repeated.push({ line, message: `same request as line ${same}; each is paid for` });
    return true;
  }

  #isFree({ path, work }: NamedRow): boolean {
    if (this.#batch.force || path.includes('{job}')) return true;
    const count = countOf(work);
    return pathsAt(path, count).every((each) => !pathExists(each));
  }

  async #counted(planned: PlannedRow): Promise<PlannedRow> {
    const { state, work, take } = planned;
    this.plan.counts[state] += 1;
    this.plan.chains.know(planned);
    if (state === 'done' && take.job !== undefined) await rememberRow(planned, take.job, this.#deps);
    if (state === 'new' || state === 'rejected') this.#addCost(work);
    return planned;
  }

  #addCost(work: Work): void {
    const model = modelOf(work) ?? 'no model';
    const cost = this.#deps.costOf(work);
    const before = this.plan.costs.get(model) ?? { rows: 0, known: zero, unknown: 0 };
    this.plan.costs.set(model, {
      rows: before.rows + 1,
      known: cost === undefined ? before.known : add(before.known, cost),
      unknown: before.unknown + (cost === undefined ? 1 : 0),
    });
  }
}

// Removes the dashes of flags: a row has fields.
function asField(message: string): string {
  return message.replace(/(^|\s)--(?=[a-z])(?!allow-files)/g, '$1');
}

/** Returns the earlier line with the value, or remembers this line. */
function first(lines: Map<string, number>, value: string, line: number): number | undefined {
  const before = lines.get(value);
  if (before === undefined) lines.set(value, line);
  return before;
}
