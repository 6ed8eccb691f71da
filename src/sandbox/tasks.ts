import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { fingerprint, chargeFor } from './bill.ts';
import type { Call, Gateway } from './exchange.ts';
import { type Model, type VideoArea, sumOf } from './models.ts';
import { claim, isObject, listFolder, parseJson, readWhole, writeWhole } from './state.ts';

/** The reason why a task fails. Each protocol has its own messages and codes for it. */
type FailureReason = 'failed' | 'failed-ext' | 'filtered' | 'rejected' | 'unreachable-asset';

/** A task's outcome, determined when the task is accepted, so that polls never contradict each other. */
export type Outcome =
  /** The content policy removes `filtered` of the samples (Protocol A). */
  | { end: 'succeeds'; filtered: number }
  | { end: 'fails'; reason: FailureReason; message: string }
  | { end: 'never' };

/** A submission that has passed its protocol's checks. */
export interface Order {
  model: Model;
  prompt: string;
  /** The number of billed seconds. */
  declaredSeconds: number;
  /** The video's duration, in seconds. */
  seconds: number;
  resolution: string;
  ratio: string;
  width: number;
  height: number;
  samples: number;
  /** Whether the videos have sound. */
  audio?: boolean;
  /** Protocol B only: whether to report usage. */
  returnUsage?: boolean;
  /** The price, in credits. */
  amount: number;
  outcome: Outcome;
  /** The request's body, which identifies repeated requests. */
  body: unknown;
}

/** A task, as stored in a file that never changes. Times are in milliseconds since 1970. */
export interface Task extends Omit<Order, 'model' | 'body'> {
  id: string;
  area: VideoArea;
  model: string;
  /** The hash of the key that submitted the task. */
  key: string;
  createdAt: number;
  paceMs: number;
}

/** A task's state at a given time. */
export interface Progress {
  state: 'queued' | 'running' | 'succeeded' | 'failed';
  /** The progress in percent, 0 to 100. */
  percent: number;
  /** Absent while the task is queued. */
  startedAt?: number;
  finishedAt?: number;
}

const queuedShare = 0.2;

/**
 * Charges for an order, and then creates its task, so that no task can exist without a charge.
 * @throws RefusedCall if the charge exceeds one of the account's limits
 */
export function acceptOrder(call: Call, area: VideoArea, order: Order): Task {
  const { gateway, key } = call;
  const { model, body, ...rest } = order;
  const { paceMs } = gateway;
  const charge = amountToCharge(gateway, order);
  const task: Task = {
    id: newId(gateway, area, fingerprint(body)),
    area,
    model: model.id,
    key,
    createdAt: gateway.now(),
    paceMs,
    ...rest,
    amount: charge.amount,
    ...faultyValues(gateway, order),
  };
  const endsAt = task.createdAt + paceMs;
  chargeFor(
    call,
    {
      task: task.id,
      area,
      model: model.id,
      ...charge,
      seconds: order.declaredSeconds * order.samples,
      body,
      text: order.prompt,
      at: task.createdAt,
      endsAt: order.outcome.end === 'never' ? null : endsAt,
    },
    isFailure(order) ? endsAt : undefined,
  );
  writeWhole(taskPath(gateway.stateDir, task.id), gateway.redact(JSON.stringify(task)));
  return task;
}

/** Returns the amount to charge: the price, plus any amount that a fault adds. */
function amountToCharge({ takeFault }: Gateway, { amount }: Order): { amount: number; extra?: number } {
  if (!takeFault('extra-charge')) return { amount };
  const extra = sumOf([amount / 2]);
  return { amount: sumOf([amount, extra]), extra };
}

/** Returns the task values that faults change. */
function faultyValues({ takeFault }: Gateway, { seconds, width, height }: Order): Partial<Task> {
  const half = (pixels: number): number => 2 * Math.max(8, Math.round(pixels / 4));
  return {
    ...(takeFault('short-video') && { seconds: seconds / 2 }),
    ...(takeFault('small-video') && { width: half(width), height: half(height) }),
    ...(takeFault('silent-video') && { audio: false }),
  };
}

/** Returns an area's task with the exact id; undefined if there is none. */
export function findTask(stateDir: string, area: VideoArea, id: string): Task | undefined {
  if (!/^[A-Za-z0-9_-]{1,100}$/.test(id)) return undefined;
  return readTask(taskPath(stateDir, id)).find((task) => task.area === area);
}

/** Returns every task in a state folder. */
export function listTasks(stateDir: string): Task[] {
  return listFolder(join(stateDir, 'tasks'))
    .filter((name) => name.endsWith('.json'))
    .flatMap((name) => readTask(join(stateDir, 'tasks', name)));
}

function readTask(path: string): Task[] {
  return [parseJson(readWhole(path) ?? '')].filter(isTask);
}

function isTask(value: unknown): value is Task {
  return (
    isObject(value) &&
    typeof value.id === 'string' &&
    typeof value.createdAt === 'number' &&
    isObject(value.outcome)
  );
}

/** Returns a task's state at `now`: queued for the first fifth of the generation, then running, then finished. */
export function progressOf(task: Task, now: number): Progress {
  const { createdAt, paceMs, outcome } = task;
  const startedAt = createdAt + Math.round(paceMs * queuedShare);
  const finishedAt = createdAt + paceMs;
  if (now >= finishedAt && outcome.end !== 'never') {
    return {
      state: outcome.end === 'succeeds' ? 'succeeded' : 'failed',
      percent: 100,
      startedAt,
      finishedAt,
    };
  }
  if (now < startedAt) return { state: 'queued', percent: 0 };
  const percent = Math.floor(((now - createdAt) / Math.max(paceMs, 1)) * 100);
  return { state: 'running', percent: Math.min(Math.max(percent, 1), 99), startedAt };
}

/** Whether a task ends without any result. */
export function isFailure({ outcome, samples }: Pick<Order, 'outcome' | 'samples'>): boolean {
  return outcome.end === 'fails' || (outcome.end === 'succeeds' && outcome.filtered >= samples);
}

// Derives the id from the request rather than a counter, so that concurrent clients get the same ids in every run.
function newId(gateway: Gateway, area: VideoArea, orderHash: string): string {
  const { seed, stateDir } = gateway;
  if (seed === undefined) return formatId(area, randomBytes(32).toString('hex'));
  for (let attempt = 0; ; attempt += 1) {
    const id = formatId(area, createHash('sha256').update(`${seed}:${orderHash}:${attempt}`).digest('hex'));
    if (claim(join(stateDir, 'ids', id))) return id;
  }
}

/** Returns an id in the format of the real services. */
function formatId(area: VideoArea, digits: string): string {
  if (area === 'a') return digits.slice(0, 24);
  if (area === 'b') return `1400000000-AigcVideo-${digits.slice(0, 32)}t`;
  return `task_${digits.slice(0, 32)}`;
}

function taskPath(stateDir: string, id: string): string {
  return join(stateDir, 'tasks', `${id}.json`);
}

/** Words in a prompt, text or input that determine the outcome without a fault. */
export const magicWords = [
  { word: '[fail]', areas: 'a, b, c', does: 'The task fails at its end (in Protocol B, with an ErrCode).' },
  { word: '[fail-ext]', areas: 'b', does: 'The task ends with FINISH, ErrCode 0 and an ErrCodeExt.' },
  { word: '[filtered]', areas: 'a, b, c', does: 'The content policy blocks the result.' },
  { word: '[partly-filtered]', areas: 'a', does: 'The content policy blocks the last sample only.' },
  { word: '[never]', areas: 'a, b, c', does: 'The task never finishes.' },
  { word: '[speech-error]', areas: 'tts', does: 'An error frame replaces all audio.' },
  { word: '[speech-breaks]', areas: 'tts', does: 'An error frame replaces the second half.' },
  { word: '[speech-cut]', areas: 'tts', does: 'The stream ends halfway, without its end frame.' },
  { word: '[no-audio]', areas: 'tts', does: 'The end frame arrives without any audio.' },
  { word: '[voice-denied]', areas: 'tts', does: 'HTTP 403: the voice is not authorized.' },
  { word: '[no-balance]', areas: 'tts, responses', does: 'HTTP 403, insufficient balance.' },
  { word: '[response-fails]', areas: 'responses', does: 'The response fails.' },
  { word: '[response-refuses]', areas: 'responses', does: 'The model refuses to answer.' },
] as const;

/**
 * Returns the outcome of a task that is about to be accepted. A magic word in the prompt takes precedence over a fault.
 * With neither, the task succeeds.
 */
export function decideOutcome(call: Call, area: VideoArea, prompt: string, samples = 1): Outcome {
  return (
    promptOutcome(area, prompt, samples) ??
    faultOutcome(call, area, samples) ?? { end: 'succeeds', filtered: 0 }
  );
}

/** Returns the outcome of a failing task. Each reason has a default message. */
export function failure(reason: FailureReason, message?: string): Outcome {
  return { end: 'fails', reason, message: message ?? defaultMessages[reason] };
}

const defaultMessages: Readonly<Record<FailureReason, string>> = {
  failed: 'The generation failed.',
  'failed-ext': 'The generation failed in the model.',
  filtered: 'The result was held back because it may violate the content policy.',
  rejected: 'The upstream rejected a value of the request.',
  'unreachable-asset': 'An asset of the request could not be fetched.',
};

function promptOutcome(area: VideoArea, prompt: string, samples: number): Outcome | undefined {
  if (prompt.includes('[never]')) return { end: 'never' };
  if (prompt.includes('[fail]')) return failure('failed');
  if (prompt.includes('[filtered]')) return filteredOutcome(area, samples);
  if (area === 'b' && prompt.includes('[fail-ext]')) return failure('failed-ext');
  if (area === 'a' && prompt.includes('[partly-filtered]')) return { end: 'succeeds', filtered: 1 };
  return undefined;
}

function faultOutcome(call: Call, area: VideoArea, samples: number): Outcome | undefined {
  const { gateway } = call;
  if (gateway.takeFault('never-finishes')) return { end: 'never' };
  if (gateway.takeFault('task-fails')) return failure('failed');
  if (area === 'a' && gateway.takeFault('a-filtered')) return filteredOutcome(area, samples);
  if (area === 'a' && gateway.takeFault('a-partly-filtered')) return { end: 'succeeds', filtered: 1 };
  if (area === 'b' && gateway.takeFault('b-finish-errcode')) return failure('failed');
  if (area === 'b' && gateway.takeFault('b-finish-errcodeext')) return failure('failed-ext');
  return undefined;
}

/**
 * Returns the outcome if every sample is filtered. In Protocol A, such an operation has no `error`: it succeeds with
 * an empty result.
 */
function filteredOutcome(area: VideoArea, samples: number): Outcome {
  return area === 'a' ? { end: 'succeeds', filtered: samples } : failure('filtered');
}
