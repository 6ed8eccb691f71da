import type { Json } from '../../json.ts';
import { oneOf, text, wholeNumber } from '../parse.ts';
import type { Flag } from '../protocol.ts';

/** The flags of Protocol B's `submit` (specification 2.3). `ReturnUsage` is folded into `ExtInfo` by normalise. */
export const flags: readonly Flag[] = [
  {
    flags: '--model <name>',
    description: 'model name as the listing gives it; letter case counts',
    field: 'ModelName',
    kind: 'text',
    parse: text,
    group: 'Model',
  },
  {
    flags: '--model-version <version>',
    description: "one of the model's versions; may be left out where the listing gives just one",
    field: 'ModelVersion',
    kind: 'text',
    parse: text,
    group: 'Model',
  },
  {
    flags: '--prompt <text>',
    description: 'description of the video; required without --first-frame or --reference',
    field: 'Prompt',
    kind: 'text',
    parse: text,
    group: 'Content',
  },
  {
    flags: '--negative-prompt <text>',
    description: 'content to exclude, where the model supports it',
    field: 'NegativePrompt',
    kind: 'text',
    parse: text,
    group: 'Content',
  },
  {
    flags: '--first-frame <url>',
    description: 'image that the video begins with',
    field: 'FileInfos',
    kind: 'text',
    // A list of one: the lists of flags that share a field are joined.
    parse: (url) => [asset(url, 'FirstFrame')],
    group: 'Assets',
  },
  {
    flags: '--reference <url...>',
    description: 'reference image; may be repeated',
    field: 'FileInfos',
    kind: 'list',
    parse: (url) => asset(url, 'Reference'),
    group: 'Assets',
  },
  {
    flags: '--duration <seconds>',
    description: 'length of the video',
    field: 'OutputConfig.Duration',
    kind: 'text',
    parse: wholeNumber,
    group: 'Output',
  },
  {
    flags: '--resolution <size>',
    description: 'such as 720P; letter case counts',
    field: 'OutputConfig.Resolution',
    kind: 'text',
    parse: text,
    group: 'Output',
  },
  {
    flags: '--aspect-ratio <ratio>',
    description: 'such as 16:9',
    field: 'OutputConfig.AspectRatio',
    kind: 'text',
    parse: text,
    group: 'Output',
  },
  {
    flags: '--audio',
    description: 'make the video with or without sound',
    field: 'OutputConfig.AudioGeneration',
    kind: 'switch',
    parse: (on) => (on === true ? 'Enabled' : 'Disabled'),
    group: 'Output',
  },
  {
    flags: '--storage-mode <mode>',
    description: 'where the result is kept: Temporary',
    field: 'OutputConfig.StorageMode',
    kind: 'text',
    parse: oneOf('Temporary'),
    group: 'Output',
  },
  {
    flags: '--ext-info <json>',
    description: "the model's extension parameters as JSON text, or @FILE to read it from a file",
    field: 'ExtInfo',
    kind: 'text',
    parse: text,
    atFile: true,
    group: 'Extension',
  },
  {
    flags: '--return-usage',
    description: 'ask an extension model to report its usage (ExtInfo, serialised twice)',
    field: 'ReturnUsage',
    kind: 'switch',
    group: 'Extension',
  },
];

function asset(url: string | boolean, usage: 'FirstFrame' | 'Reference'): Json {
  return { Type: 'Url', Url: text(url), Category: 'Image', Usage: usage };
}
