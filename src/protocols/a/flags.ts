import { switchFlag, valueFlag, wholeNumber } from '../parse.ts';
import type { Flag } from '../protocol.ts';
import { imageFromFile, imageFromFrame } from './image.ts';

const whole = { parse: wholeNumber };

/** The flags of `mgw video a submit`: every field of specification 2.1, and the model of the path (4.1). */
export const flags: readonly Flag[] = [
  valueFlag('-m, --model <name>', 'model', 'the model: mgw models --protocol a lists them'),
  valueFlag('--prompt <text>', 'instances.0.prompt', 'what happens: content, motion, camera, style, sound'),
  valueFlag('-d, --duration <seconds>', 'parameters.durationSeconds', 'length, in whole seconds', whole),
  valueFlag('--resolution <name>', 'parameters.resolution', 'such as 720p or 1080p', {
    words: ['720p', '1080p'],
  }),
  valueFlag('--aspect-ratio <ratio>', 'parameters.aspectRatio', 'such as 16:9 or 9:16', {
    words: ['16:9', '9:16'],
  }),
  switchFlag('--audio', 'parameters.generateAudio', 'make sound, if the model can'),
  valueFlag('--negative-prompt <text>', 'parameters.negativePrompt', 'what must not be seen'),
  valueFlag('--sample-count <n>', 'parameters.sampleCount', 'how many videos; each is paid for', whole),
  valueFlag(
    '--person-generation <policy>',
    'parameters.personGeneration',
    "the model's policy on showing people",
  ),
  valueFlag('--seed <n>', 'parameters.seed', 'random seed, a whole number', whole),
  switchFlag('--enhance-prompt', 'parameters.enhancePrompt', 'let the model rewrite the prompt'),
  {
    flags: '--image <file|@job>',
    field: 'instances.0.image',
    description: 'first frame, if the model accepts one: a PNG or JPEG file, or @JOB:last',
    kind: 'file',
    fromFile: imageFromFile,
    fromFrame: imageFromFrame,
    isAsset: true,
    group: 'Assets',
  },
];
