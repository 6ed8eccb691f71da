import { decimalNumber, listFlag, switchFlag, valueFlag } from '../flag.ts';
import type { Flag } from '../protocol.ts';
import { ratios } from './models.ts';

const asset = { group: 'Assets', isAsset: true } as const;

/**
 * The flags of `mgw video c submit`, for the unified fields (specification 2.5). The native fields of the self-hosted
 * models (`seconds`, `audios`, `mode`) can be set with `--set` and `--body`.
 */
export const flags: readonly Flag[] = [
  valueFlag(
    '-m, --model <name>',
    'model',
    'model, such as vendor-h3-mini (to list them: mgw models --protocol c)',
  ),
  valueFlag(
    '--prompt <text>',
    'prompt',
    'what the video shows; at most 30000 characters for the self-hosted models',
  ),
  valueFlag(
    '-d, --duration <seconds>',
    'duration',
    'length in seconds: 4 to 15 for vendor-h3 (default 5), 5 to 15 for the self-hosted models',
    { aliases: ['seconds'], parse: decimalNumber },
  ),
  valueFlag(
    '--resolution <size>',
    'resolution',
    '768P (default) or 2K for vendor-h3, 720p for the self-hosted models',
    { words: ['768P', '2K', '720p'] },
  ),
  valueFlag('--aspect-ratio <ratio>', 'aspect_ratio', `${ratios.slice(0, -1).join(', ')} or adaptive`, {
    aliases: ['ratio'],
    words: ratios,
  }),
  valueFlag('--mode <mode>', 'generation_mode', 't2v, i2v or r2v (default: inferred from the assets)', {
    aliases: ['mode'],
    words: ['t2v', 'i2v', 'r2v'],
  }),
  switchFlag(
    '--prompt-optimization',
    'prompt_optimization',
    'let the upstream rewrite the prompt (self-hosted models)',
  ),
  valueFlag(
    '--image <url|file|@job>',
    'image',
    'first frame, or a single reference image; @JOB:last continues a job',
    { ...asset, fieldDescription: 'first frame, or a single reference image' },
  ),
  listFlag('--images <url|file...>', 'images', 'images, at most 9; kept for compatibility', asset),
  valueFlag(
    '--last-frame <url|file>',
    'last_frame_image_url',
    'last frame; combine with --image to set both frames',
    { ...asset, fieldDescription: 'last frame; combine with image to set both frames' },
  ),
  listFlag('--reference-image <url|file...>', 'reference_image_urls', 'reference images, at most 9', asset),
  listFlag(
    '--reference-video <url|file...>',
    'reference_video_urls',
    'reference videos, at most 3; only for vendor-h3',
    asset,
  ),
  listFlag('--reference-audio <url|file...>', 'reference_audio_urls', 'reference audio files, at most 3', {
    ...asset,
    aliases: ['audios'],
  }),
  valueFlag(
    '--input-reference <url|file>',
    'input_reference',
    'like --image, but sent in the field input_reference',
    { ...asset, fieldDescription: 'same as image' },
  ),
];
