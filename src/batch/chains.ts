import { counted, printableLine } from '../printable.ts';
import { createHash } from 'node:crypto';
import { usageError } from '../errors.ts';
import type { EarlierAsset, Part } from '../flows/earlier-job.ts';
import type { Job } from '../job.ts';
import { isUnaccepted } from '../jobs/reconcile.ts';
import { isObject } from '../json.ts';
import { isStoredName, withAssets } from '../protocols/protocol.ts';
import {
  type NamedRow,
  type PlannedRow,
  type Root,
  countOf,
  isSpeech,
  type VideoWork,
  type Work,
  type RowState,
  type RowStatus,
} from './planned-row.ts';
import type { Input, RowGraph } from './row-graph.ts';
import type { Row } from './manifest/row.ts';
import { rowStatusOf, type RowStatusDeps, statusOfTake } from './row-state.ts';

/** The functions that {@link Chains} uses to compose the requests of rows that wait for other rows. */
export interface ChainDeps extends RowStatusDeps {
  /**
   * Composes a row's request. `inputs` contains the assets that are results of other rows.
   * @throws MgwError('usage') as the equivalent `submit` or `tts` command does.
   */
  workOf: (row: Row, inputs?: ReadonlyMap<string, EarlierAsset>) => Promise<Work>;
  /** Returns the assets in a job's record, newest first. */
  assetsOf: (job: Job, part: Part) => EarlierAsset[];
}

/** A row that another row waits for. */
interface Source {
  state: RowState;
  job?: Job | undefined;
  isSpeech: boolean;
  /** The number of files that the row makes. */
  count: number;
  /** The row to report as the cause if this row is not done. */
  root: Root;
}

/** A run skips rows in these states. Rows that wait for a skipped row are blocked. */
const blockingStates = new Set<RowState>(['failed', 'unknown', 'changed', 'blocked', 'stale']);

/** Tracks the rows that other rows wait for, and determines the states of the waiting rows. */
export class Chains {
  readonly graph: RowGraph;
  readonly #sources = new Map<string, Source>();

  constructor(graph: RowGraph) {
    this.graph = graph;
  }

  /** Records a row's state. Must be called before the rows that wait for this row are planned. */
  record({ id, state, take: { job }, work, because }: PlannedRow): void {
    if (!this.graph.isNeeded(id)) return;
    const root = state === 'blocked' || state === 'stale' ? because : undefined;
    this.#sources.set(id, {
      state,
      job,
      isSpeech: isSpeech(work),
      count: countOf(work),
      root: root ?? { id, state, job },
    });
  }

  /** Records a row's outcome. */
  recordOutcome(id: string, state: RowState, job: Job | undefined): void {
    const source = this.#sources.get(id);
    if (source !== undefined) this.#sources.set(id, { ...source, state, job, root: { id, state, job } });
  }

  /** Records that a row has become invalid. */
  recordInvalid(id: string): void {
    this.#sources.delete(id);
  }

  /** Returns the row that blocks the given row; undefined if none does. */
  blockerOf(row: Row): Root | undefined {
    const blocker = this.graph.waitsFor(row).find((id) => this.#sources.get(id)?.state !== 'done');
    return blocker === undefined ? undefined : this.#rootOf(blocker);
  }

  // A stale row blocks other rows itself: the row that made it stale is done.
  #rootOf(id: string): Root {
    const source = this.#sources.get(id);
    return source?.state === 'stale' ? { id, state: 'stale' } : (source?.root ?? { id });
  }

  /**
   * Returns a placeholder for each of the row's inputs, which may not exist yet. A row without an id is named after the
   * hash of its request, which includes these placeholders.
   */
  placeholders(row: Row): Map<string, EarlierAsset> {
    return new Map(this.graph.inputsOf(row).map((input) => [input.ref, placeholderOf(input)]));
  }

  /**
   * Determines the state of a row that waits for other rows.
   * @param named the row with its placeholders
   * @throws MgwError('usage') if it waits for speech, or for a video that no row makes.
   */
  async planRow(named: NamedRow, deps: ChainDeps): Promise<PlannedRow> {
    const inputs = this.graph.inputsOf(named.row);
    if (inputs.length === 0) return { ...named, ...(await rowStatusOf(named, deps)) };
    const assets = inputs.map((input) => this.#assetsOf(input, deps));
    const missing = inputs.find((_, index) => assets[index]?.length === 0);
    const planned = await this.#planWith(named, inputs, assets, deps);
    const source = missing && this.#sources.get(missing.id);
    const isPaid = planned.state === 'running' || planned.state === 'unknown' || planned.state === 'done';
    if (missing === undefined || source?.state !== 'done' || isPaid) return planned;
    // The gateway may deliver fewer videos than a row requests.
    const { id, part } = missing;
    const problem = `${printableLine(id, 100)} did not deliver video ${part.index}`;
    return { ...planned, state: 'blocked', because: { id, state: 'done', job: source.job, problem } };
  }

  async #planWith(
    named: NamedRow,
    inputs: readonly Input[],
    assets: readonly EarlierAsset[][],
    deps: ChainDeps,
  ): Promise<PlannedRow> {
    const waitsFor = this.graph.waitsFor(named.row);
    const resolved = inputs.flatMap(({ ref }, index) => {
      const [asset] = assets[index] ?? [];
      return asset === undefined ? [] : [[ref, asset] as const];
    });
    const isComplete = resolved.length === inputs.length;
    const work = isComplete ? await deps.workOf(named.row, new Map(resolved)) : named.work;
    const composed = { ...named, waitsFor, work };
    const status = await rowStatusOf(composed, deps);
    const paidRow = status.changes === undefined ? undefined : this.#withPaidInputs(named, status, inputs);
    const before = paidRow && {
      ...statusOfTake(status.take, { path: named.path, work: paidRow.work }, deps),
      next: status.next,
    };
    if (paidRow === undefined || before === undefined || before.changes !== undefined)
      return this.#withStaleness({ ...composed, ...status });
    // If the paid job is unfinished or in doubt, continue that job before anything is remade.
    if (before.state === 'running' || before.state === 'unknown')
      return { ...composed, work: paidRow.work, ...before };
    if (before.state === 'failed') return { ...composed, ...before };
    const remade = inputs.find(
      (_, index) => !(assets[index] ?? []).some(({ name }) => paidRow.names.has(name)),
    );
    if (before.state === 'done' && remade === undefined)
      return this.#withStaleness({ ...composed, work: paidRow.work, ...before });
    return { ...composed, ...before, state: 'stale', because: { id: (remade ?? inputs[0])?.id ?? '' } };
  }

  #withStaleness(planned: PlannedRow): PlannedRow {
    const { state, waitsFor = [] } = planned;
    const isOpen = state === 'new' || state === 'rejected';
    for (const id of waitsFor) {
      const source = this.#sources.get(id);
      if (isOpen && (source === undefined || blockingStates.has(source.state)))
        return { ...planned, state: 'blocked', because: this.#rootOf(id) };
      if (state === 'done' && source?.state === 'stale')
        return { ...planned, state: 'stale', because: source.root };
    }
    return planned;
  }

  #assetsOf({ id, part }: Input, { assetsOf }: ChainDeps): EarlierAsset[] {
    const source = this.#sources.get(id);
    if (source?.isSpeech) throw usageError(`${part.label}: ${id} is speech, not a video.`);
    if (source !== undefined && (part.index < 1 || part.index > source.count))
      throw usageError(`${part.label}: ${id} makes only ${counted(source.count, 'video')}.`);
    return source?.job === undefined ? [] : assetsOf(source.job, part);
  }

  // Returns the row's request with the inputs of its paid job; undefined if that job was not accepted, or its request
  // is unknown or has a different number of files.
  #withPaidInputs(
    { work }: NamedRow,
    { take: { job } }: RowStatus,
    inputs: readonly Input[],
  ): { work: VideoWork; names: Set<string> } | undefined {
    if (isSpeech(work) || !isObject(job?.request) || isUnaccepted(job)) return undefined;
    const placeholders = new Set(inputs.map((input) => placeholderOf(input).name));
    const names = storedNames(work, job.request);
    const own = storedNames(work, work.body);
    if (names.length !== own.length) return undefined;
    const paidInputs = new Map(
      own.flatMap((name, index) => (placeholders.has(name) ? [[name, names[index] ?? '']] : [])),
    );
    const change = (value: string): string => paidInputs.get(value) ?? value;
    const { protocol, body, userBody } = work;
    const as = { body: withAssets(protocol, body, change), userBody: withAssets(protocol, userBody, change) };
    return { work: { ...work, ...as, upload: undefined }, names: new Set(paidInputs.values()) };
  }
}

/** Returns the stored names in a body's assets, in order. */
export function storedNames({ protocol }: VideoWork, body: VideoWork['body']): string[] {
  const names: string[] = [];
  withAssets(protocol, body, (value) => {
    if (isStoredName(value)) names.push(value);
    return value;
  });
  return names;
}

/**
 * Returns the placeholder for an input that does not exist. Its hash includes the input row's id. Otherwise, rows
 * without ids that differ only in their inputs would have the same name.
 */
export function placeholderOf({ id, part: { index, place } }: Input): EarlierAsset {
  const hash = createHash('sha256').update(`row ${id}#${index}`).digest('hex');
  const find = (): Promise<never> => Promise.reject(usageError(`${id} has no video yet.`));
  return { name: `sha256:${hash}.mp4${place === undefined ? '' : `#${place}`}`, find, read: find };
}
