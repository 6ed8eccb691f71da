import type { McpServer, ServerContext } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { deadlineIn } from '../clock.ts';
import { usageError } from '../errors.ts';
import { priceOf, type Asked } from '../flows/prices.ts';
import { submitVideo } from '../flows/submit-video.ts';
import { checkKeyName } from '../key-name.ts';
import { composeSpeech } from '../speech/compose.ts';
import { speechModel } from '../speech/wire.ts';
import type { Call } from './calls.ts';
import {
  type Answered,
  type Given,
  goesOn,
  keyField,
  paidAnswer,
  payingDeps,
  sameKey,
  unconfirmed,
} from './paying.ts';
import { type Answer, answerSchema } from './result.ts';
import type { Tools } from './tools.ts';
import { composedVideo, videoFields } from './video-arguments.ts';

/** Adds `submit_video`, and `price`. */
export function addVideoTools(server: McpServer, tools: Tools): void {
  server.registerTool(
    'submit_video',
    {
      title: 'Submit a video',
      description: `Submits one video and returns as soon as the gateway has accepted it: this costs money. ${sameKey} Then call wait, then fetch.`,
      inputSchema: z.strictObject({ key: keyField, ...videoFields() }),
      outputSchema: answerSchema,
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true },
    },
    (given, context) => submitted(tools, given.key, given, context),
  );
  server.registerTool(
    'price',
    {
      title: 'What a request may cost',
      description:
        'Tells what a video (the arguments of submit_video) or a text (text) would cost at most. Nothing is sent.',
      inputSchema: z.strictObject({
        ...videoFields(),
        text: z.string().describe('the text of speech').optional(),
      }),
      outputSchema: answerSchema,
      annotations: { readOnlyHint: true, openWorldHint: true },
    },
    (given, context) => tools.calls.run(context, (call) => priced(tools, given, call)),
  );
}

async function submitted(tools: Tools, key: string, given: Given, context: ServerContext): Promise<Answered> {
  const fields = { ...given, key: undefined };
  let asking: Answered | undefined;
  const result = await tools.calls.run(
    context,
    async (call) => {
      checkKeyName(key, false);
      const { video, advice } = await composedVideo(tools, fields);
      call.notes.push(...advice);
      const { protocol, body } = video;
      const order = { protocol: protocol.name, model: protocol.modelOf(body), body };
      const deps = await payingDeps(tools, call);
      asking = await unconfirmed(tools, { key, order, tool: 'submit_video', given }, deps, context);
      if (asking !== undefined) return goesOn('submit_video', given);
      const { job, isResumed, delivered } = await submitVideo(
        video,
        {
          ask: 'accept',
          force: false,
          fresh: false,
          sidecar: false,
          key,
          blockedByAnyDoubt: true,
          deadline: deadlineIn(longestSubmissionMs, tools.session.clock),
        },
        deps,
      );
      await delivered();
      return paidAnswer(job, isResumed, { tool: 'wait', arguments: { refs: [job.id] } });
    },
    () => goesOn('submit_video', given),
  );
  return asking ?? result;
}

// A call is answered before that; a refused submission is tried again for so long at most, ms.
const longestSubmissionMs = 10 * 60_000;

async function priced(tools: Tools, { text, ...given }: Given, call: Call): Promise<Answer> {
  const settings = await tools.session.settings();
  let asked: Asked;
  if (typeof text === 'string') {
    if (Object.keys(given).length > 0)
      throw usageError('Give text, or the arguments of submit_video, not both.');
    asked = { protocol: 'tts', model: speechModel, body: composeSpeech(text, undefined, {}, settings).body };
  } else {
    const { video, advice } = await composedVideo(tools, given);
    call.notes.push(...advice);
    asked = { protocol: video.protocol.name, model: video.protocol.modelOf(video.body), body: video.body };
  }
  const { cost, what } = priceOf(asked, settings);
  const budgets = await tools.authority.view();
  return { ok: true, charged: 'no', retry: 'safe', next: null, what, cost: cost ?? 'unknown', budgets };
}
