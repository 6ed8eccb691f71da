import type { Json } from '../../json.ts';
import { listFlag, oneOf, switchFlag, text, valueFlag, wholeNumber } from '../flag.ts';
import type { Flag } from '../protocol.ts';

const assets = { group: 'Assets' };

/** The flags of `mgw video b submit` (specification 2.3). `normalize` moves `ReturnUsage` into `ExtInfo`. */
export const flags: readonly Flag[] = [
  valueFlag('-m, --model <name>', 'ModelName', 'model name, exactly as listed by mgw models --protocol b'),
  valueFlag(
    '--model-version <version>',
    'ModelVersion',
    'version of the model; optional if the model list contains only one',
  ),
  valueFlag(
    '--prompt <text>',
    'Prompt',
    'what the video shows; required without --first-frame or --reference',
    { fieldDescription: 'what the video shows; required without FileInfos' },
  ),
  valueFlag('-d, --duration <seconds>', 'OutputConfig.Duration', 'length, in whole seconds', {
    parse: wholeNumber,
  }),
  valueFlag('--resolution <size>', 'OutputConfig.Resolution', 'size, such as 720P; case-sensitive', {
    words: ['720P', '1080P'],
  }),
  valueFlag('--aspect-ratio <ratio>', 'OutputConfig.AspectRatio', 'width to height, such as 16:9', {
    words: ['16:9', '9:16'],
  }),
  switchFlag('--audio', 'OutputConfig.AudioGeneration', 'generate sound, if the model supports it', {
    parse: (on) => (on === true ? 'Enabled' : 'Disabled'),
  }),
  valueFlag(
    '--negative-prompt <text>',
    'NegativePrompt',
    'what must not appear in the video, if the model supports negative prompts',
  ),
  valueFlag(
    '--storage-mode <mode>',
    'OutputConfig.StorageMode',
    'storage mode; the only value is Temporary',
    {
      parse: oneOf('Temporary'),
      words: ['Temporary'],
    },
  ),
  valueFlag(
    '--ext-info <json>',
    'ExtInfo',
    "the model's extension parameters as JSON text, or @FILE to read it from a file",
    { atFile: true, fieldDescription: "the model's extension parameters as JSON text" },
  ),
  switchFlag(
    '--return-usage',
    'ReturnUsage',
    'ask an extension model to report its usage (ExtInfo, serialized twice)',
  ),
  // The value is a list with one entry, because flags that share a field must set lists, which are then joined.
  valueFlag(
    '--first-frame <url|file|@job>',
    'FileInfos',
    'image that the video begins with; @JOB:last continues a job',
    {
      ...assets,
      isAsset: true,
      parse: (url) => [asset(url, 'FirstFrame')],
    },
  ),
  listFlag('--reference <url|file...>', 'FileInfos', 'reference images', {
    ...assets,
    isAsset: true,
    parse: (url) => asset(url, 'Reference'),
  }),
];

function asset(url: string | boolean, usage: 'FirstFrame' | 'Reference'): Json {
  return { Type: 'Url', Url: text(url), Category: 'Image', Usage: usage };
}
