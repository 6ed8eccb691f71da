import { text, wholeNumber } from '../parse.ts';
import type { Flag } from '../protocol.ts';
import { imageFromFile } from './image.ts';

/** The flags of `mgw video a submit`: every field of specification 2.1, and the model of the path (4.1). */
export const flags: readonly Flag[] = [
  {
    flags: '--model <name>',
    description: 'model, as `mgw models --protocol a` lists it',
    field: 'model',
    kind: 'text',
    parse: text,
  },
  {
    flags: '--prompt <text>',
    description: 'what happens: content, motion, camera, style, sound',
    field: 'instances.0.prompt',
    kind: 'text',
    parse: text,
  },
  {
    flags: '--image <file>',
    description: 'first frame, where the model takes one',
    field: 'instances.0.image',
    kind: 'file',
    fromFile: imageFromFile,
  },
  {
    flags: '--duration <seconds>',
    description: 'length of the video',
    field: 'parameters.durationSeconds',
    kind: 'text',
    parse: wholeNumber,
  },
  {
    flags: '--resolution <name>',
    description: 'for example 720p, 1080p',
    field: 'parameters.resolution',
    kind: 'text',
    parse: text,
  },
  {
    flags: '--aspect-ratio <ratio>',
    description: 'for example 16:9, 9:16',
    field: 'parameters.aspectRatio',
    kind: 'text',
    parse: text,
  },
  {
    flags: '--audio',
    description: 'make sound, where the model can',
    field: 'parameters.generateAudio',
    kind: 'switch',
  },
  {
    flags: '--negative-prompt <text>',
    description: 'what must not be seen',
    field: 'parameters.negativePrompt',
    kind: 'text',
    parse: text,
  },
  {
    flags: '--sample-count <n>',
    description: 'number of videos; each is paid for',
    field: 'parameters.sampleCount',
    kind: 'text',
    parse: wholeNumber,
  },
  {
    flags: '--person-generation <policy>',
    description: "the model's policy on showing people",
    field: 'parameters.personGeneration',
    kind: 'text',
    parse: text,
  },
  {
    flags: '--seed <n>',
    description: 'random seed',
    field: 'parameters.seed',
    kind: 'text',
    parse: wholeNumber,
  },
  {
    flags: '--enhance-prompt',
    description: 'let the model rewrite the prompt',
    field: 'parameters.enhancePrompt',
    kind: 'switch',
  },
];
