import { switchFlag, valueFlag, wholeNumber } from '../parse.ts';
import type { Flag } from '../protocol.ts';
import { imageFromFile } from './image.ts';

const whole = { parse: wholeNumber };

/** The flags of `mgw video a submit`: every field of specification 2.1, and the model of the path (4.1). */
export const flags: readonly Flag[] = [
  valueFlag('--model <name>', 'model', 'model, as `mgw models --protocol a` lists it'),
  valueFlag('--prompt <text>', 'instances.0.prompt', 'what happens: content, motion, camera, style, sound'),
  {
    flags: '--image <file>',
    field: 'instances.0.image',
    description: 'first frame, where the model takes one',
    kind: 'file',
    fromFile: imageFromFile,
  },
  valueFlag('--duration <seconds>', 'parameters.durationSeconds', 'length of the video', whole),
  valueFlag('--resolution <name>', 'parameters.resolution', 'for example 720p, 1080p'),
  valueFlag('--aspect-ratio <ratio>', 'parameters.aspectRatio', 'for example 16:9, 9:16'),
  switchFlag('--audio', 'parameters.generateAudio', 'make sound, where the model can'),
  valueFlag('--negative-prompt <text>', 'parameters.negativePrompt', 'what must not be seen'),
  valueFlag('--sample-count <n>', 'parameters.sampleCount', 'number of videos; each is paid for', whole),
  valueFlag(
    '--person-generation <policy>',
    'parameters.personGeneration',
    "the model's policy on showing people",
  ),
  valueFlag('--seed <n>', 'parameters.seed', 'random seed', whole),
  switchFlag('--enhance-prompt', 'parameters.enhancePrompt', 'let the model rewrite the prompt'),
];
