import type { Json } from '../../json.ts';
import { listFlag, oneOf, switchFlag, text, valueFlag, wholeNumber } from '../parse.ts';
import type { Flag } from '../protocol.ts';

/** The flags of `mgw video b submit` (specification 2.3). `ReturnUsage` is folded into `ExtInfo` by `normalise`. */
export const flags: readonly Flag[] = [
  ...inGroup('Model', [
    valueFlag('--model <name>', 'ModelName', 'model name as the listing gives it; letter case counts'),
    valueFlag(
      '--model-version <version>',
      'ModelVersion',
      "one of the model's versions; may be left out where the listing gives just one",
    ),
  ]),
  ...inGroup('Content', [
    valueFlag(
      '--prompt <text>',
      'Prompt',
      'description of the video; required without --first-frame or --reference',
    ),
    valueFlag(
      '--negative-prompt <text>',
      'NegativePrompt',
      'content to exclude, where the model supports it',
    ),
  ]),
  ...inGroup('Assets', [
    // A list of one: the lists of flags that share a field are joined.
    valueFlag('--first-frame <url>', 'FileInfos', 'image that the video begins with', {
      parse: (url) => [asset(url, 'FirstFrame')],
    }),
    listFlag('--reference <url...>', 'FileInfos', 'reference image; may be repeated', {
      parse: (url) => asset(url, 'Reference'),
    }),
  ]),
  ...inGroup('Output', [
    valueFlag('--duration <seconds>', 'OutputConfig.Duration', 'length of the video', { parse: wholeNumber }),
    valueFlag('--resolution <size>', 'OutputConfig.Resolution', 'such as 720P; letter case counts'),
    valueFlag('--aspect-ratio <ratio>', 'OutputConfig.AspectRatio', 'such as 16:9'),
    switchFlag('--audio', 'OutputConfig.AudioGeneration', 'make the video with or without sound', {
      parse: (on) => (on === true ? 'Enabled' : 'Disabled'),
    }),
    valueFlag('--storage-mode <mode>', 'OutputConfig.StorageMode', 'where the result is kept: Temporary', {
      parse: oneOf('Temporary'),
    }),
  ]),
  ...inGroup('Extension', [
    valueFlag(
      '--ext-info <json>',
      'ExtInfo',
      "the model's extension parameters as JSON text, or @FILE to read it from a file",
      { atFile: true },
    ),
    switchFlag(
      '--return-usage',
      'ReturnUsage',
      'ask an extension model to report its usage (ExtInfo, serialised twice)',
    ),
  ]),
];

function inGroup(group: string, members: Flag[]): Flag[] {
  return members.map((flag) => ({ ...flag, group }));
}

function asset(url: string | boolean, usage: 'FirstFrame' | 'Reference'): Json {
  return { Type: 'Url', Url: text(url), Category: 'Image', Usage: usage };
}
