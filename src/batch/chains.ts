import { counted } from '../printable.ts';
import { createHash } from 'node:crypto';
import { usageError } from '../errors.ts';
import type { EarlierAsset, Part } from '../flows/earlier-job.ts';
import type { Job } from '../job.ts';
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
import { rowStatusOf, type RowStatusDeps } from './row-state.ts';

/** Functions that {@link Chains} needs to compose the rows that wait for others. */
export interface ChainDeps extends RowStatusDeps {
  /**
   * Composes a row's request; `inputs` has the assets that are results of other rows.
   * @throws MgwError('usage') as its command does.
   */
  workOf: (row: Row, inputs?: ReadonlyMap<string, EarlierAsset>) => Promise<Work>;
  /** The assets that a job's record can provide, the newest first. */
  assetsOf: (job: Job, part: Part) => EarlierAsset[];
}

/** A row that another one waits for. */
interface Source {
  state: RowState;
  job?: Job | undefined;
  isSpeech: boolean;
  /** The number of files that the row makes. */
  count: number;
  /** The row to name as the cause if this one is not done. */
  root: Root;
}

/** States of rows that a run skips. Rows that wait for them are blocked. */
const stuck = new Set<RowState>(['failed', 'unknown', 'changed', 'blocked', 'stale']);

/** Keeps the rows that other rows wait for, and determines the states of the rows that wait. */
export class Chains {
  readonly graph: RowGraph;
  readonly #sources = new Map<string, Source>();

  constructor(graph: RowGraph) {
    this.graph = graph;
  }

  /** Records the state of a row. Must be called before the rows that wait for it are planned. */
  know({ id, state, take: { job }, work, because }: PlannedRow): void {
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

  /** Records the outcome of a row. */
  ended(id: string, state: RowState, job: Job | undefined): void {
    const source = this.#sources.get(id);
    if (source !== undefined) this.#sources.set(id, { ...source, state, job, root: { id, state, job } });
  }

  /** Returns the row that blocks a row; undefined if none does. */
  obstacleTo(row: Row): Root | undefined {
    const open = this.graph.waitsFor(row).find((id) => this.#sources.get(id)?.state !== 'done');
    return open === undefined ? undefined : (this.#sources.get(open)?.root ?? { id: open });
  }

  /** Returns a placeholder for each input of a row. The name of a row without an id depends on its placeholders. */
  placeholders(row: Row): Map<string, EarlierAsset> {
    return new Map(this.graph.inputsOf(row).map((input) => [input.ref, placeholderOf(input)]));
  }

  /**
   * Determines the state of a row that waits for others.
   * @param found the row with its placeholders
   * @throws MgwError('usage') if a row that it waits for is done but has no saved video.
   */
  async planned(found: NamedRow, deps: ChainDeps): Promise<PlannedRow> {
    const inputs = this.graph.inputsOf(found.row);
    if (inputs.length === 0) return { ...found, ...(await rowStatusOf(found, deps)) };
    const waitsFor = this.graph.waitsFor(found.row);
    const assets = inputs.map((input) => this.#assetsOf(input, deps));
    const given = inputs.flatMap(({ ref }, index) => {
      const [asset] = assets[index] ?? [];
      return asset === undefined ? [] : [[ref, asset] as const];
    });
    const isWhole = given.length === inputs.length;
    const [missing] = inputs.filter((_, index) => assets[index]?.length === 0);
    if (missing !== undefined && this.#sources.get(missing.id)?.state === 'done')
      throw usageError(`${missing.part.label}: ${missing.id} has no saved video.`);
    const work = isWhole ? await deps.workOf(found.row, new Map(given)) : found.work;
    const own = { ...found, waitsFor, work };
    const status = await rowStatusOf(own, deps);
    const paid = status.state === 'changed' ? this.#asPaid(found, status, inputs) : undefined;
    const before = paid && (await rowStatusOf({ ...found, work: paid.work }, deps));
    if (paid === undefined || before === undefined || before.state === 'changed')
      return this.#judged({ ...own, ...status });
    // The result of the paid job has not been fetched yet, or the job is in doubt: finish that job first.
    if (before.state === 'running' || before.state === 'unknown')
      return { ...own, work: paid.work, ...before };
    if (before.state === 'failed') return { ...own, ...before };
    const remade = inputs.find((_, index) => !(assets[index] ?? []).some(({ name }) => paid.names.has(name)));
    if (before.state === 'done' && remade === undefined)
      return this.#judged({ ...own, work: paid.work, ...before });
    return { ...own, ...before, state: 'stale', because: { id: (remade ?? inputs[0])?.id ?? '' } };
  }

  #judged(planned: PlannedRow): PlannedRow {
    const { state, waitsFor = [] } = planned;
    const isOpen = state === 'new' || state === 'rejected';
    for (const id of waitsFor) {
      const source = this.#sources.get(id);
      const because = source?.root ?? { id };
      const isStale = source?.state === 'stale';
      if (isOpen && (source === undefined || stuck.has(source.state)))
        return { ...planned, state: 'blocked', because: isStale ? { id, state: 'stale' } : because };
      if (state === 'done' && isStale) return { ...planned, state: 'stale', because };
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

  // Returns the row with the inputs of its paid job; undefined if anything besides the inputs has changed since.
  #asPaid(
    { work }: NamedRow,
    { take: { job } }: RowStatus,
    inputs: readonly Input[],
  ): { work: VideoWork; names: Set<string> } | undefined {
    if (isSpeech(work) || !isObject(job?.request)) return undefined;
    const placeholders = new Set(inputs.map((input) => placeholderOf(input).name));
    const names = namesIn(work, job.request);
    const own = namesIn(work, work.body);
    if (names.length !== own.length) return undefined;
    const paid = new Map(
      own.flatMap((name, index) => (placeholders.has(name) ? [[name, names[index] ?? '']] : [])),
    );
    const change = (value: string): string => paid.get(value) ?? value;
    const { protocol, body, userBody } = work;
    const as = { body: withAssets(protocol, body, change), userBody: withAssets(protocol, userBody, change) };
    return { work: { ...work, ...as, upload: undefined }, names: new Set(paid.values()) };
  }
}

function namesIn({ protocol }: VideoWork, body: VideoWork['body']): string[] {
  const names: string[] = [];
  withAssets(protocol, body, (value) => {
    if (isStoredName(value)) names.push(value);
    return value;
  });
  return names;
}

// The hash covers the id of the named row, since the placeholder is part of the name of a row without an id.
function placeholderOf({ id, part: { index, place } }: Input): EarlierAsset {
  const hash = createHash('sha256').update(`row ${id}#${index}`).digest('hex');
  return {
    name: `sha256:${hash}.mp4${place === undefined ? '' : `#${place}`}`,
    read: () => Promise.reject(usageError(`${id} has no video yet.`)),
  };
}
