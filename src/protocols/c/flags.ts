import type { Flag } from '../protocol.ts';
import { decimalNumber, text } from '../parse.ts';

const assets = 'Assets';

/**
 * The flags of `submit` for the unified fields of Protocol C (specification 2.5). The native fields of the
 * self-hosted models (`seconds`, `audios`, `mode`) are reached with `--set` and `--body`.
 */
export const flags: readonly Flag[] = [
  { flags: '--model <name>', description: 'model name', field: 'model', kind: 'text', parse: text },
  {
    flags: '--prompt <text>',
    description: 'what the video shows, at most 30000 characters',
    field: 'prompt',
    kind: 'text',
    parse: text,
  },
  {
    flags: '--duration <seconds>',
    description: 'length: vendor-h3 4 to 15, the self-hosted models 5 to 15',
    field: 'duration',
    aliases: ['seconds'],
    kind: 'text',
    parse: decimalNumber,
  },
  {
    flags: '--resolution <size>',
    description: 'vendor-h3 768P or 2K, the self-hosted models 720p',
    field: 'resolution',
    kind: 'text',
    parse: text,
  },
  {
    flags: '--aspect-ratio <ratio>',
    description: '16:9, 9:16, 1:1, 4:3, 3:4, 21:9, 9:21, 4:5, 5:4 or adaptive',
    field: 'aspect_ratio',
    aliases: ['ratio'],
    kind: 'text',
    parse: text,
  },
  {
    flags: '--mode <mode>',
    description: 't2v, i2v or r2v; left out, the assets decide',
    field: 'generation_mode',
    aliases: ['mode'],
    kind: 'text',
    parse: text,
  },
  {
    flags: '--prompt-optimization',
    description: 'let the upstream rewrite the prompt (self-hosted models)',
    field: 'prompt_optimization',
    kind: 'switch',
  },
  {
    flags: '--image <url>',
    description: 'first frame, or a single reference image',
    field: 'image',
    kind: 'text',
    group: assets,
  },
  {
    flags: '--images <url...>',
    description: 'image URLs (compatibility field)',
    field: 'images',
    kind: 'list',
    group: assets,
  },
  {
    flags: '--last-frame <url>',
    description: 'last frame; with --image, first and last frame',
    field: 'last_frame_image_url',
    kind: 'text',
    group: assets,
  },
  {
    flags: '--reference-image <url...>',
    description: 'reference image, at most 9',
    field: 'reference_image_urls',
    kind: 'list',
    group: assets,
  },
  {
    flags: '--reference-video <url...>',
    description: 'reference video, at most 3 (vendor-h3)',
    field: 'reference_video_urls',
    kind: 'list',
    group: assets,
  },
  {
    flags: '--reference-audio <url...>',
    description: 'reference audio, at most 3',
    field: 'reference_audio_urls',
    aliases: ['audios'],
    kind: 'list',
    group: assets,
  },
  {
    flags: '--input-reference <url>',
    description: 'another source of the first or reference image',
    field: 'input_reference',
    kind: 'text',
    group: assets,
  },
];
