import { usageError } from '../errors.ts';
import { createOrResume } from '../jobs/create-or-resume.ts';
import { deliver } from '../jobs/deliver.ts';
import { fingerprintOf } from '../jobs/order.ts';
import { inRun } from '../jobs/run.ts';
import { writeSidecars } from '../jobs/sidecar.ts';
import { submit } from '../jobs/submit.ts';
import { goalOf } from '../jobs/target.ts';
import { videoOrder, type VideoSubmission } from '../jobs/video-order.ts';
import { checkKeyName } from '../key-name.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { configured } from '../flows/protocols.ts';
import { payingDeps } from '../flows/paying-deps.ts';
import { composeVideo } from '../flows/video-body.ts';
import { version } from '../version.ts';
import { depsOf, shownJob, type Call, type Calls } from './calls.ts';
import { deliveryOf } from './delivery.ts';
import { amountText, checkNames, jsonObject, protocolNamed, targetOf } from './inputs.ts';
import type { UncheckedVideo, VideoOrder } from './options.ts';
import type { Submitted } from './results.ts';

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
  signal: true,
  giveUp: true,
  timeout: true,
};

/** `submit` of a client. */
export function submitVideo(calls: Calls, order: VideoOrder): Promise<Submitted> {
  return calls.run(order, (call) => submitOne(call, order));
}

async function submitOne(call: Call, given: VideoOrder): Promise<Submitted> {
  const { session, settings, deadline } = call;
  checkNames(given, orderNames, 'submit');
  const { key, newTake: fresh = false, force = false, sidecar = false, budget } = given;
  checkKeyName(key, fresh);
  const target = targetOf(given.output);
  if (sidecar && target === undefined) throw usageError('sidecar is put next to a file: name one by output.');
  const protocol = configured(protocolNamed(given.protocol), settings);
  const submission = await composed(call, protocol, given);
  const ask = target === undefined ? (given.wait ? 'finish' : 'accept') : 'file';
  const goal = goalOf('submit', ask, target);
  const order = videoOrder(protocol, submission, { goal, deadline, key, fresh, target, force, sidecar });
  const { name } = await session.gateway();
  const paying = await payingDeps(session, 'command', fingerprintOf(order, name), {
    budget: amountText(budget),
  });
  const deps = depsOf(call, paying);
  let resumed = false;
  const ran = await inRun(
    goal,
    deps,
    (began) => createOrResume(order, deps, began),
    async (found, own) => {
      const { job, isResumed } = await submit(found, order, own);
      resumed = isResumed;
      return deliver(job, protocol, own, await deliveryOf(call, { ask, target, force, atOnce: isResumed }));
    },
  );
  if (sidecar) await writeSidecars(ran.job, ran.value, version);
  await ran.delivered();
  return { job: shownJob(ran.job), files: ran.value, resumed };
}

async function composed({ session }: Call, protocol: Protocol, given: VideoOrder): Promise<VideoSubmission> {
  const parts = { body: jsonObject(given.body, 'body'), flags: {}, check: given.check };
  const { body, asked, advice } = await composeVideo(session, protocol, parts);
  const exchange = protocol.submission(body, { endpoint: given.endpoint });
  for (const note of advice) session.note(note);
  return { body, asked, exchange };
}
