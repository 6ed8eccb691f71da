import * as z from 'zod';
import { longName } from '../protocols/compose.ts';
import { protocolNamed, protocolNames } from '../protocols/registry.ts';
import type { Flag } from '../protocols/protocol.ts';
import { usageError } from '../errors.ts';
import { printableLine } from '../printable.ts';
import { checkNoTemplate } from '../store-url.ts';
import { keyField, sameKey, tool } from './tool.ts';
import { deadlineIn } from '../clock.ts';
import type { PaymentRequest } from './paying.ts';

// Returns the arguments that describe a video: the flags of all protocols. Each description begins with the protocols
// that have the flag.
function videoFields(): Record<string, z.ZodOptional> {
  const single = z.union([z.string(), z.number()]);
  const types = {
    switch: z.optional(z.boolean()),
    list: z.optional(z.union([z.array(single), z.string(), z.number()])),
    other: z.optional(single),
  };
  const fields = [...allFlags()].map(([name, { kind, texts }]) => {
    const type = kind === 'switch' || kind === 'list' ? types[kind] : types.other;
    const parts = [...texts].map(([text, protocols]) => `${protocols.join(', ')}: ${text}`);
    return [name, type.describe(parts.join('; '))] as const;
  });
  return {
    protocol: z.optional(z.enum(protocolNames)).describe('the protocol that serves the model; see models'),
    ...Object.fromEntries(fields),
  };
}

// Returns the kind of each flag, and the protocols for each of its descriptions.
function allFlags(): Map<string, { kind: Flag['kind']; texts: Map<string, string[]> }> {
  const flags = new Map<string, { kind: Flag['kind']; texts: Map<string, string[]> }>();
  for (const protocol of protocolNames)
    for (const flag of protocolNamed(protocol).flags) {
      const { kind } = flag;
      // Removes the mention of @FILE, because tools do not read text from files.
      const description = flag.description.replace(/, or @FILE\b[^,;]*/, '');
      const entry = flags.get(longName(flag)) ?? { kind, texts: new Map<string, string[]>() };
      entry.texts.set(description, [...(entry.texts.get(description) ?? []), protocol]);
      flags.set(longName(flag), { ...entry, kind });
    }
  return flags;
}

/** The tools that pay for a video or speech, and the `price` tool, which returns the cost. */
export const paidTools = [
  tool({
    name: 'submit_video',
    title: 'Submit a video',
    description: `Submits one video and returns as soon as the gateway has accepted it. This costs money. ${sameKey} The models tool lists the models and their protocols. Each argument's description begins with the protocols that accept it. Then call wait, then fetch.`,
    effect: 'pay',
    fields: () => ({ key: keyField(), ...videoFields() }),
    run: async (...args) => (await import('./videos.ts')).runSubmitVideo(...args),
  }),
  tool({
    name: 'price',
    title: 'Price a request',
    description:
      'Returns the maximum cost of a video (with the arguments of submit_video except key) or of speech (with text), and the amount left in each budget. Nothing is sent.',
    effect: 'look',
    fields: () => ({ ...videoFields(), text: z.optional(z.string().describe('the text to speak')) }),
    run: async (...args) => (await import('./videos.ts')).runPrice(...args),
  }),
  tool({
    name: 'speak',
    title: 'Speak text',
    description: `Speaks text into a file. This costs money. ${sameKey}`,
    effect: 'pay',
    fields: () => ({
      key: keyField(),
      text: z.string().describe('the text to speak'),
      speaker: z.optional(z.string().describe('the name of a voice')),
      format: z.optional(
        z.string().describe('mp3, wav, pcm or ogg_opus (default: from the extension of output)'),
      ),
      'sample-rate': z.optional(z.number().describe('hertz')),
      output: z
        .string()
        .describe("path of the file in the server's folder, such as out.mp3; .mp3, .wav, .pcm or .ogg"),
    }),
    run: async (args, call, tools) => {
      const { speak } = await import('../flows/speak.ts');
      const { numberedPath } = await import('../jobs/output.ts');
      const { composeSpeech } = await import('../speech/compose.ts');
      const { speechModel } = await import('../speech/wire.ts');
      const { pay } = await import('./paying.ts');
      const { key, text, output, speaker, format, 'sample-rate': sampleRate } = args;
      const { session, root } = tools;
      if (/[\\/]$/.test(output))
        throw usageError(
          `output: ${printableLine(output, 200)} is a folder. Use the path of a file, such as out.mp3.`,
        );
      checkNoTemplate('output', output);
      const path = await root.file(numberedPath(output, 0, 1), 'output');
      const settings = await session.settings();
      const speech = composeSpeech(text, path, { speaker, format, sampleRate }, settings);
      const submission = {
        output: path,
        force: false,
        sidecar: false,
        fresh: false,
        key,
        deadline: deadlineIn(settings.timeoutMs.value, session.clock),
        blockedByAnyDoubt: call.deadline,
      };
      const request: PaymentRequest = {
        tool: 'speak',
        key,
        args: { ...args },
        absoluteArgs: { ...args, output: path },
        order: { protocol: 'tts', model: speechModel, body: speech.body },
        flow: (deps) =>
          speak(speech, submission, { ...deps, onFailedRun: (record) => call.onAnswered(record) }),
        next: () => null,
      };
      return pay(request, call, tools);
    },
  }),
];
