import * as z from 'zod';
import { deadlineIn } from '../clock.ts';
import { usageError } from '../errors.ts';
import { priceOf, type Asked } from '../flows/prices.ts';
import { submitVideo } from '../flows/submit-video.ts';
import { composeSpeech } from '../speech/compose.ts';
import { speechModel } from '../speech/wire.ts';
import type { Call } from './calls.ts';
import { type AskedPayment, type Given, keyField, pay, sameKey } from './paying.ts';
import { type Outcome, well } from './result.ts';
import { tool, type Tools } from './tool.ts';
import { composedVideo, videoFields } from './video-arguments.ts';

/** `submit_video`, and `price`. */
export const videoTools = [
  tool({
    name: 'submit_video',
    title: 'Submit a video',
    description: `Submits one video and returns as soon as the gateway has accepted it: this costs money. ${sameKey} models lists the models and their protocols; an argument belongs to the protocols that its description begins with. Then call wait, then fetch.`,
    effect: 'pay',
    fields: { key: keyField, ...videoFields },
    run: (given, call, tools) => submitted(given, call, tools),
  }),
  tool({
    name: 'price',
    title: 'What a request may cost',
    description:
      'Tells what a video (the arguments of submit_video without key) or speech (text) would cost at most, and what is left of the budgets. Nothing is sent.',
    effect: 'look',
    fields: { ...videoFields, text: z.optional(z.string().describe('the text of speech')) },
    run: (given, call, tools) => priced(given, call, tools),
  }),
];

// A refused submission is tried again for so long at most, ms. The call is answered before that.
const longestSubmissionMs = 10 * 60_000;

async function submitted(
  { key, ...given }: Given & { key: string },
  call: Call,
  tools: Tools,
): Promise<Outcome> {
  const { video, advice, defaults } = await composedVideo(tools, given);
  call.notes.push(...advice, ...(defaults === undefined ? [] : [defaults]));
  const { protocol, body } = video;
  const wanted = {
    ask: 'accept',
    force: false,
    fresh: false,
    sidecar: false,
    key,
    blockedByAnyDoubt: call.deadline,
    deadline: deadlineIn(longestSubmissionMs, tools.session.clock),
  } as const;
  const asked: AskedPayment = {
    tool: 'submit_video',
    key,
    given: { key, ...given },
    order: { protocol: protocol.name, model: protocol.modelOf(body), body },
    flow: (deps) => submitVideo(video, wanted, deps),
    next: ({ id }) => ({ tool: 'wait', arguments: { refs: [id] } }),
  };
  return pay(asked, call, tools);
}

async function priced({ text, ...given }: Given, call: Call, tools: Tools): Promise<Outcome> {
  const settings = await tools.session.settings();
  let asked: Asked;
  if (typeof text === 'string') {
    if (Object.keys(given).length > 0)
      throw usageError('Give text, or the arguments of submit_video, not both.');
    asked = { protocol: 'tts', model: speechModel, body: composeSpeech(text, undefined, {}, settings).body };
  } else {
    const { video, advice, defaults } = await composedVideo(tools, given);
    call.notes.push(...advice, ...(defaults === undefined ? [] : [defaults]));
    asked = { protocol: video.protocol.name, model: video.protocol.modelOf(video.body), body: video.body };
  }
  const { cost, what } = priceOf(asked, settings);
  return { ...well, next: null, what, cost: cost ?? 'unknown', budgets: await tools.authority.view() };
}
