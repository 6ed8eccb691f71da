import { createHash } from 'node:crypto';
import type { ComposedVideo } from '../flows/compose-video.ts';
import type { ComposedSpeech } from '../flows/speak.ts';
import type { JobKind } from '../job.ts';
import type { Order } from '../jobs/order.ts';
import { at, canonicalJson, type Json } from '../json.ts';
import { longName } from '../protocols/compose.ts';
import { speechModel } from '../speech/wire.ts';

/** The request of a row, composed and checked as its command would: one paid submission. */
export type Work = VideoWork | SpeechWork;

/** A row that `video X submit` would submit. */
export type VideoWork = ComposedVideo;

/** A row that `tts` would speak. */
export type SpeechWork = ComposedSpeech & { protocol: 'tts' } & Pick<VideoWork, 'isFromFile'>;

/** True for speech. */
export function isSpeech(work: Work): work is SpeechWork {
  return work.protocol === 'tts';
}

/** The kind of a work's job. */
export function kindOf(work: Work): JobKind {
  return isSpeech(work) ? 'tts' : work.protocol.name;
}

/** The values that identify the job of a work, and detect changes. */
export function submissionOf(work: Work): Pick<Order, 'protocol' | 'body' | 'asked' | 'variant'> {
  const { body } = work;
  if (!isSpeech(work)) return { protocol: work.protocol.name, body, asked: work.asked };
  return { protocol: 'tts', body, variant: work.format.wav ? 'wav' : undefined };
}

/** The hash of a work's request, independent of its name. */
export function hashOf(work: Work): string {
  const { protocol, body, asked = body, variant = '' } = submissionOf(work);
  return createHash('sha256')
    .update([protocol, canonicalJson(asked), variant].join('\n'))
    .digest('hex');
}

/** The model of a work. */
export function modelOf(work: Work): string | undefined {
  return isSpeech(work) ? speechModel : work.protocol.modelOf(work.body);
}

/** Whether a frame of a video has to be taken before a work is sent. */
export function needsFrame(work: Work): boolean {
  return !isSpeech(work) && /"sha256:[\da-f]{64}\.mp4#/.test(JSON.stringify(work.body));
}

/** Whether a work is sent with URLs of uploaded files. */
export function needsUrls(work: Work): boolean {
  if (isSpeech(work) || work.protocol.inlineAssets) return false;
  return /"sha256:[\da-f]{64}[."]/.test(JSON.stringify(work.body));
}

/** Returns the number of files of a work. */
export function countOf(work: Work): number {
  return isSpeech(work) ? 1 : (work.protocol.countOf?.(work.body) ?? 1);
}

/** The value of the field that a flag of a work's command sets: `prompt`, `seed`. */
export function fieldOf(work: Work, name: string): Json | undefined {
  if (isSpeech(work)) return name === 'prompt' ? at(work.body, 'req_params.text') : undefined;
  const flag = work.protocol.flags.find((each) => longName(each) === name);
  return flag === undefined ? undefined : at(work.body, flag.field);
}

const extensions: Record<string, string> = { ogg_opus: 'ogg' };

/** The extension of a work's file, without its dot. */
export function extensionOf(work: Work): string {
  return isSpeech(work) ? (extensions[work.format.name] ?? work.format.name) : 'mp4';
}
