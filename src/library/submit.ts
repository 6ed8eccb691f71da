import { usageError } from '../errors.ts';
import { composeVideo } from '../flows/compose-video.ts';
import { submitVideo as submitAndDeliver } from '../flows/submit-video.ts';
import { checkKeyName } from '../jobs/order.ts';
import { depsOf, shownJob, type Calls, amountText, checkNames, jsonObject, targetOf } from './calls.ts';
import { protocolNamed } from '../protocols/registry.ts';
import type { Submitted, UncheckedVideo, VideoOrder } from './options.ts';

const orderNames: Record<keyof UncheckedVideo, true> = {
  protocol: true,
  body: true,
  check: true,
  endpoint: true,
  key: true,
  newTake: true,
  budget: true,
  wait: true,
  output: true,
  force: true,
  sidecar: true,
  strict: true,
  mark: true,
  signal: true,
  giveUp: true,
  timeout: true,
};

/** `submit` of a client. */
export function submitVideo(calls: Calls, given: VideoOrder | UncheckedVideo): Promise<Submitted> {
  return calls.run(given, async (call) => {
    checkNames(given, orderNames, 'submit');
    const {
      key,
      newTake: fresh = false,
      force = false,
      sidecar = false,
      strict,
      mark,
      check,
      endpoint,
    } = given;
    checkKeyName(key, fresh);
    const target = targetOf(given.output, true);
    if (sidecar && target === undefined)
      throw usageError('sidecar is put next to a file: name one by output.');
    if (strict && target === undefined) throw usageError('strict measures the file: name one by output.');
    if (mark && target === undefined) throw usageError('mark writes into the file: name one by output.');
    const { session, deadline } = call;
    const parts = { body: jsonObject(given.body, 'body'), flags: {}, check, endpoint };
    const { video, advice, defaults } = await composeVideo(session, protocolNamed(given.protocol), parts);
    for (const note of [...advice, ...(defaults === undefined ? [] : [defaults])]) session.note(note);
    const ask = target === undefined ? (given.wait ? 'finish' : 'accept') : 'file';
    const budget = amountText(given.budget);
    const wanted = { ask, target, force, deadline, key, fresh, sidecar, strict, mark, budget } as const;
    const { job, files, isResumed, delivered } = await submitAndDeliver(video, wanted, await depsOf(call));
    await delivered();
    return { job: shownJob(job), files, resumed: isResumed };
  });
}
