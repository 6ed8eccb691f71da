import type { McpServer, ServerContext } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { deadlineIn } from '../clock.ts';
import { speak } from '../flows/speak.ts';
import { checkKeyName } from '../key-name.ts';
import { composeSpeech } from '../speech/compose.ts';
import { speechModel } from '../speech/wire.ts';
import { type Answered, goesOn, keyField, paidAnswer, payingDeps, sameKey, unconfirmed } from './paying.ts';
import { answerSchema } from './result.ts';
import type { Tools } from './tools.ts';

const speechFields = {
  text: z.string().describe('what is spoken'),
  speaker: z.optional(z.string().describe('the name of a voice')),
  format: z.optional(
    z.string().describe('mp3, wav, pcm or ogg_opus; by default the extension of output decides'),
  ),
  'sample-rate': z.optional(z.number().describe('hertz')),
};

/** Adds `speak`. */
export function addSpeechTool(server: McpServer, tools: Tools): void {
  server.registerTool(
    'speak',
    {
      title: 'Speak a text',
      description: `Speaks a text into a file: this costs money. ${sameKey}`,
      inputSchema: z.strictObject({
        key: keyField,
        ...speechFields,
        output: z.string().describe('path of the file, such as out.mp3; .mp3, .wav, .pcm or .ogg'),
      }),
      outputSchema: answerSchema,
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true },
    },
    (given, context) => spoken(tools, given, context),
  );
}

type Speech = {
  key: string;
  text: string;
  output: string;
  speaker?: string;
  format?: string;
  'sample-rate'?: number;
};

async function spoken(tools: Tools, given: Speech, context: ServerContext): Promise<Answered> {
  const { key, text, output, speaker, format, 'sample-rate': sampleRate } = given;
  let asking: Answered | undefined;
  const result = await tools.calls.run(
    context,
    async (call) => {
      checkKeyName(key, false);
      const path = await tools.root.file(output, 'output');
      const settings = await tools.session.settings();
      const fields = {
        ...(speaker !== undefined && { speaker }),
        ...(format !== undefined && { format }),
        ...(sampleRate !== undefined && { sampleRate }),
      };
      const speech = composeSpeech(text, path, fields, settings);
      const deps = await payingDeps(tools, call);
      const order = { protocol: 'tts', model: speechModel, body: speech.body };
      asking = await unconfirmed(tools, { key, order, tool: 'speak', given: { ...given } }, deps, context);
      if (asking !== undefined) return goesOn('speak', { ...given });
      const deadline = deadlineIn(settings.timeoutMs.value, tools.session.clock);
      const wanted = {
        output: path,
        force: false,
        sidecar: false,
        fresh: false,
        key,
        deadline,
        blockedByAnyDoubt: true,
      };
      const { job, files, isResumed, delivered } = await speak(speech, wanted, deps);
      await delivered();
      return { ...paidAnswer(job, isResumed, null), files };
    },
    () => goesOn('speak', { ...given }),
  );
  return asking ?? result;
}
