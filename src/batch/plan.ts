import { MgwError, messageOf, usageError } from '../errors.ts';
import { Sum } from '../budget/spend.ts';
import type { Decimal } from '../decimal.ts';
import { checkNoSecret } from '../jobs/order.ts';
import { pathExists, pathsAt, sameFileName, type OutputPlace } from '../jobs/output.ts';
import { type ChainDeps, Chains } from './chains.ts';
import { maxProblems, type Manifest } from './manifest/manifest.ts';
import { type ManifestRecord, type Problem, problemsOf, problemText } from './manifest/fields.ts';
import type { Row } from './manifest/row.ts';
import { isStillDone, rememberRow, type DoneRow, type DoneRowCache } from './done-row-cache.ts';
import {
  nameRow,
  type NamedRow,
  type PlannedRow,
  countOf,
  modelOf,
  type Work,
  rowStates,
  type RowState,
  type RowStatus,
  existsText,
} from './planned-row.ts';
import { RowGraph } from './row-graph.ts';
import { rowStatusOf } from './row-state.ts';

/** The dependencies of {@link planBatch}. */
export interface PlanDeps extends ChainDeps {
  /** Removes the API key from a string. */
  redact: (text: string) => string;
  /** Returns a row's maximum cost; undefined if it is unknown. */
  costOf: (work: Work) => Decimal | undefined;
  /** The cache of done rows, if done rows only need to be counted. */
  known?: DoneRowCache | undefined;
  /** Returns a row's state. By default, the state is read from the ledger. */
  statusOf?: (row: NamedRow) => RowStatus;
}

/** A batch whose manifest is open. */
export interface Batch {
  manifest: Manifest;
  name: string;
  place: OutputPlace;
  /** Whether to replace existing output files. */
  force: boolean;
  /** The real paths of the folders whose files rows may use. */
  readable: readonly string[];
  /** The folder that relative paths in rows are resolved against. Default: the current folder. */
  filesFrom?: string;
  /** Whether rows may set only fields that have a flag, like the tools of an agent. Default: false. */
  hasOnlyFlags?: boolean;
}

/** What a run will do, and its maximum cost. */
export interface Plan {
  rows: number;
  counts: Record<RowState, number>;
  /** The first ten thousand problems, in file order. */
  problems: Problem[];
  /** The number of invalid rows. */
  bad: number;
  /** The number of done rows found in the cache. */
  known: number;
  /** Rows with the same request as an earlier row but a different name. Both rows are paid for. */
  repeated: Problem[];
  chains: Chains;
  /** The maximum cost of the rows to pay for. */
  cost: Sum;
  /** The maximum cost for each model. */
  costs: Map<string, Sum>;
  /** The line of the row that owns each output path. Paths are normalized by `sameFileName`. */
  paths: Map<string, number>;
  /** The row that each recorded file of a latest take belongs to. Paths are normalized by `sameFileName`. */
  saved: Map<string, { id: string; line: number }>;
}

/**
 * Reads a manifest once, checks every row, and determines each row's state. Sends and writes nothing.
 * @param onRow receives each valid row that is not cached as done; rows that wait for others come last
 * @throws MgwError if the manifest or the ledger cannot be read.
 */
export async function planBatch(
  batch: Batch,
  deps: PlanDeps,
  onRow: (planned: PlannedRow) => Promise<void> | void,
): Promise<Plan> {
  const graph = await RowGraph.read(batch.manifest, batch.name);
  const planning = new Planning(batch, deps, new Chains(graph));
  const waiting = new Map<number, Row>();
  for await (const item of batch.manifest.items((record) => planning.isKnown(record))) {
    if ('problems' in item) planning.refuse(item.problems, item.isRow);
    else if (graph.waitsFor(item.row).length > 0) waiting.set(item.row.index, item.row);
    else {
      const { row, record } = item;
      // A row with `over` is not cached, because its content does not prove that the row it refers to exists.
      const cacheKey = row.over === undefined ? deps.known?.contentHash(record) : undefined;
      const planned = await planning.row(row, cacheKey);
      if (planned !== undefined) await onRow(planned);
    }
  }
  for (const index of graph.order) {
    const row = waiting.get(index);
    const planned = row && (await planning.row(row));
    if (planned !== undefined) await onRow(planned);
  }
  deps.known?.write();
  const { plan } = planning;
  if (waiting.size > 0) plan.problems.sort((one, other) => one.line - other.line);
  plan.rows = Object.values(plan.counts).reduce((sum, count) => sum + count, plan.bad);
  return plan;
}

/**
 * Returns a row's current state, regardless of an earlier plan.
 * @param chains the dependencies between rows; absent if the row waits for no other row
 * @throws MgwError('usage') if the row is invalid.
 */
export async function planRow(
  row: Row,
  { name, place }: Batch,
  deps: PlanDeps,
  chains?: Chains,
): Promise<PlannedRow> {
  const namedRow = nameRow(row, await deps.workOf(row, chains?.placeholders(row)), name, place);
  return chains === undefined
    ? { ...namedRow, ...(await rowStatusOf(namedRow, deps)) }
    : chains.planRow(namedRow, deps);
}

/** One pass through a manifest. Stores what later rows need to know about earlier ones. */
class Planning {
  readonly plan: Plan;
  readonly #batch: Batch;
  readonly #deps: PlanDeps;
  /** The line on which each id, of valid and invalid rows, and each request first appears. */
  readonly #ids = new Map<string, number>();
  readonly #hashes = new Map<string, number>();
  /** The messages already reported. A wrong value in a matrix affects many rows but is reported once. */
  readonly #reported = new Set<string>();
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
      cost: new Sum(),
      costs: new Map(),
      paths: new Map(),
      saved: new Map(),
    };
  }

  /** Records the problems of a row, or of lines that are not rows. */
  refuse(problems: readonly Problem[], isRow = true): void {
    const lines = problems.filter(({ line }) => line !== this.#badLine);
    this.plan.bad += isRow ? 1 : lines.length;
    for (const problem of problems) {
      this.#badLine = problem.line;
      if (this.plan.problems.length >= maxProblems) continue;
      const text = problemText('', problem);
      if (!this.#reported.has(text)) this.plan.problems.push(problem);
      this.#reported.add(text);
    }
  }

  /** Whether a row is cached and still done. If so, counts the row. */
  async isKnown(record: ManifestRecord): Promise<boolean> {
    const { known, ledger } = this.#deps;
    const cached = known?.find(known.contentHash(record));
    // The rows that wait for this row need its job.
    if (cached === undefined || this.plan.chains.graph.isNeeded(cached.id)) return false;
    if (!(await isStillDone(cached, `${this.#batch.name}/${cached.id}`, ledger))) return false;
    if (this.#isUnique(cached, record.line)) {
      this.plan.counts.done += 1;
      this.plan.known += 1;
    }
    return true;
  }

  /** Returns the row with its state; undefined if the row is invalid. `cacheKey` is the row's key in the cache. */
  async row(row: Row, cacheKey?: string): Promise<PlannedRow | undefined> {
    const work = await this.#workOf(row);
    const namedRow = work && (await this.#withName(row, work, cacheKey));
    if (namedRow === undefined && row.id !== undefined) earlierLine(this.#ids, row.id, row.line);
    if (namedRow === undefined) return undefined;
    const planned = await this.#refuseOnError(row, () => this.#stateOf(namedRow));
    const retry = planned?.rowPath && planned.path;
    if (planned === undefined || !this.#ownsPath(retry, countOf(planned.work), row.line)) return undefined;
    if (planned.state !== 'new' || this.#isPathFree(planned)) return this.#count(planned);
    // The existing file may belong to this row, because another process may have just finished it.
    const recheck = await this.#stateOf(namedRow);
    if (recheck.state !== 'new') return this.#count(recheck);
    this.refuse([{ line: row.line, field: 'output', message: `${namedRow.path} ${existsText}` }]);
    return undefined;
  }

  async #stateOf(namedRow: NamedRow): Promise<PlannedRow> {
    const { statusOf } = this.#deps;
    if (statusOf === undefined) return this.plan.chains.planRow(namedRow, this.#deps);
    return { ...namedRow, ...statusOf(namedRow), waitsFor: this.plan.chains.graph.waitsFor(namedRow.row) };
  }

  #workOf(row: Row): Promise<Work | undefined> {
    const { graph } = this.plan.chains;
    return this.#refuseOnError(row, () => {
      const fault = graph.cycleOf(row.index) ?? graph.overFaultOf(row);
      if (fault !== undefined) throw usageError(fault);
      return this.#deps.workOf(row, this.plan.chains.placeholders(row));
    });
  }

  // Runs a step of a row's plan. If it finds the row invalid, refuses the row, as a problem of `field` if that is given.
  async #refuseOnError<T>(row: Row, find: () => T | Promise<T>, field?: string): Promise<T | undefined> {
    try {
      return await find();
    } catch (error) {
      if (!(error instanceof MgwError) || error.code !== 'usage') throw error;
      const problem = { line: row.line, field, message: messageOf(error) };
      this.refuse(field === undefined ? problemsOf(row, error) : [problem]);
      return undefined;
    }
  }

  #withName(row: Row, work: Work, cacheKey?: string): Promise<NamedRow | undefined> {
    const find = (): NamedRow | undefined => {
      const namedRow = nameRow(row, work, this.#batch.name, this.#batch.place);
      checkNoSecret('the path', namedRow.path, this.#deps.redact);
      const fullRow = { ...namedRow, isNamed: row.id !== undefined, count: countOf(work) };
      return this.#isUnique(fullRow, row.line) ? { ...namedRow, cacheKey } : undefined;
    };
    return this.#refuseOnError(row, find, 'output');
  }

  #isUnique(row: Omit<DoneRow, 'take' | 'job' | 'version' | 'files'>, line: number): boolean {
    const { id, isNamed, hash, path, count } = row;
    const sameRequest = earlierLine(this.#hashes, hash, line);
    const sameId = earlierLine(this.#ids, id, line);
    if (sameId !== undefined) {
      const message = isNamed
        ? `duplicate id "${id}" (also on line ${sameId})`
        : `same request as line ${sameId}; to make it twice, give each row its own id`;
      this.refuse([{ line, field: isNamed ? 'id' : undefined, message }]);
      return false;
    }
    if (!this.#ownsPath(path, count, line) || !this.#ownsPath(row.retryPath, count, line)) return false;
    if (sameRequest !== undefined)
      this.plan.repeated.push({ line, message: `same request as line ${sameRequest}; both will be charged` });
    return true;
  }

  // Records the paths of a row's files, if any. If an earlier row owns one of them, refuses the row and returns false.
  #ownsPath(path: string | undefined, count: number, line: number): boolean {
    const paths = path === undefined ? [] : pathsAt(path, count);
    const lines = paths.map((each) => earlierLine(this.plan.paths, sameFileName(each), line));
    const index = lines.findIndex((earlier) => earlier !== undefined);
    if (index < 0) return true;
    const remedy = this.#batch.place.template.includes('{id}') ? '' : '; use {id} in --output';
    const message = `${paths[index]} is also the output of line ${lines[index]}${remedy}`;
    this.refuse([{ line, field: 'output', message }]);
    return false;
  }

  #isPathFree({ path, work }: NamedRow): boolean {
    if (this.#batch.force || path.includes('{job}')) return true;
    return pathsAt(path, countOf(work)).every((each) => !pathExists(each));
  }

  async #count(planned: PlannedRow): Promise<PlannedRow> {
    const { id, row, state, work, take } = planned;
    this.plan.counts[state] += 1;
    for (const path of (take.job?.files ?? []).map((file) => sameFileName(file.path)))
      if (this.plan.paths.get(path) === row.line || !this.plan.saved.has(path))
        this.plan.saved.set(path, { id, line: row.line });
    this.plan.chains.record(planned);
    if (state === 'done' && take.job !== undefined) await rememberRow(planned, take.job, this.#deps);
    if (state === 'new' || state === 'rejected') this.#addCost(work);
    return planned;
  }

  #addCost(work: Work): void {
    const model = modelOf(work) ?? 'no model';
    const cost = this.#deps.costOf(work);
    const ofModel = this.plan.costs.get(model) ?? new Sum();
    this.plan.costs.set(model, ofModel);
    for (const sum of [this.plan.cost, ofModel]) sum.add(cost);
  }
}

/** Returns the earlier line that has the given value. If there is no such line, records `line` for the value. */
function earlierLine(lines: Map<string, number>, value: string, line: number): number | undefined {
  const earlier = lines.get(value);
  if (earlier === undefined) lines.set(value, line);
  return earlier;
}
