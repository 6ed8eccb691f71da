import { EventEmitter, on } from 'node:events';
import type { Job } from '../job.ts';
import { shownJob, type Calls } from './calls.ts';
import { wait } from './deliver.ts';
import type { WaitOptions } from './options.ts';

/** `watch` of a client: a wait whose looks are given as they change. Whoever leaves the loop ends the wait. */
export async function* watch(
  calls: Calls,
  ref: string,
  given: WaitOptions = {},
): AsyncGenerator<Job, void, void> {
  const left = new AbortController();
  const signal = given.signal === undefined ? left.signal : AbortSignal.any([given.signal, left.signal]);
  const news = new EventEmitter();
  // Where the loop was left, nobody is told how its wait ended.
  news.on('error', () => undefined);
  const updates = on(news, 'update', { close: ['end'] }) as AsyncIterable<[Job]>;
  const waiting = wait(calls, ref, { ...given, signal }, (job) => news.emit('update', job)).then(
    (job) => {
      news.emit('update', job);
      news.emit('end');
    },
    (error: unknown) => news.emit('error', error),
  );
  try {
    let last = '';
    for await (const [job] of updates) {
      const shown = [job.state, job.native_status, job.progress].join('\n');
      if (shown !== last) yield shownJob(job);
      last = shown;
    }
  } finally {
    left.abort(new Error('the loop was left'));
    await waiting;
  }
}
