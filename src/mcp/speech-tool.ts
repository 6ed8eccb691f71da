import * as z from 'zod';
import { deadlineIn } from '../clock.ts';
import type { PaymentRequest } from './paying.ts';
import { keyField, sameKey, tool } from './tool.ts';

/** `speak`. */
export const speechTools = [
  tool({
    name: 'speak',
    title: 'Speak a text',
    description: `Speaks a text into a file: this costs money. ${sameKey}`,
    effect: 'pay',
    fields: () => ({
      key: keyField(),
      text: z.string().describe('what is spoken'),
      speaker: z.optional(z.string().describe('the name of a voice')),
      format: z.optional(
        z.string().describe('mp3, wav, pcm or ogg_opus; by default the extension of output decides'),
      ),
      'sample-rate': z.optional(z.number().describe('hertz')),
      output: z
        .string()
        .describe("path of the file in the server's folder, such as out.mp3; .mp3, .wav, .pcm or .ogg"),
    }),
    run: async (given, call, tools) => {
      const { speak } = await import('../flows/speak.ts');
      const { composeSpeech } = await import('../speech/compose.ts');
      const { speechModel } = await import('../speech/wire.ts');
      const { pay } = await import('./paying.ts');
      const { key, text, output, speaker, format, 'sample-rate': sampleRate } = given;
      const { session, root } = tools;
      const path = await root.file(output, 'output');
      const settings = await session.settings();
      const fields = {
        ...(speaker !== undefined && { speaker }),
        ...(format !== undefined && { format }),
        ...(sampleRate !== undefined && { sampleRate }),
      };
      const speech = composeSpeech(text, path, fields, settings);
      const wanted = {
        output: path,
        force: false,
        sidecar: false,
        fresh: false,
        key,
        deadline: deadlineIn(settings.timeoutMs.value, session.clock),
        blockedByAnyDoubt: call.deadline,
      };
      const asked: PaymentRequest = {
        tool: 'speak',
        key,
        given: { ...given },
        order: { protocol: 'tts', model: speechModel, body: speech.body },
        flow: (deps) => speak(speech, wanted, deps),
        next: () => null,
      };
      return pay(asked, call, tools);
    },
  }),
];
