import * as z from 'zod/mini';
import type { JsonObject } from '../json.ts';
import { checkShape, described, text, whole, type BodySchema } from '../protocols/body-schema.ts';
import type { Violation } from '../protocols/protocol.ts';
import { speechFlags } from './flags.ts';
import { speakable } from './split.ts';

const words = 'a text with something that can be spoken';
const formats =
  'mp3, pcm, ogg_opus or another format of the gateway; --format wav asks for PCM and writes WAV';
// A WAV header in every fragment makes a file that does not play: the service's own WAV is not asked for.
const notWav = z.regex(/^(?!wav$)/, { error: formats });

/** The body of specification 2.6, which leaves its formats and sample rates open. */
export const schema: BodySchema = described(
  z.strictObject({
    req_params: z.strictObject(
      {
        text: z
          .string({ error: words })
          .check(z.regex(speakable, { error: words }), z.describe('what is spoken')),
        speaker: z.optional(text('the name of a voice')),
        audio_params: z.optional(
          z.strictObject(
            {
              format: z.optional(
                text(formats).check(notWav, z.describe('mp3, pcm, ogg_opus or another one')),
              ),
              sample_rate: z.optional(whole('a whole number of hertz, 1 to 1000000', 1, 1_000_000)),
            },
            { error: 'an object' },
          ),
        ),
      },
      { error: 'an object with a text' },
    ),
    model: z.optional(z.never({ error: 'nothing: a header chooses the model of speech' })),
  }),
  // The flag takes wav as well, which is no format of the body.
  speechFlags.filter(({ flags }) => !flags.startsWith('--format')),
);

/** Every rule of specification 2.6 that a body breaks; empty where it may be sent. */
export function checkSpeech(body: JsonObject): Violation[] {
  return checkShape(schema, body, speechFlags);
}
