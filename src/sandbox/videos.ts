import { renderVideo } from './media/video.ts';
import type { Task } from './tasks.ts';

/** Videos kept in memory, so that the ranges of one download are cut from one rendering. */
const KEPT = 4;
const kept = new Map<string, Uint8Array>();

/** The video of a task's sample (counted from 0): always the same bytes, made when they are asked for. */
export function videoOf({ prompt, seconds, width, height, audio }: Task, sample = 0): Uint8Array {
  const options = {
    prompt: sample === 0 ? prompt : `${prompt} #${sample + 1}`,
    seconds,
    width,
    height,
    audio,
  };
  const name = JSON.stringify(options);
  const bytes = kept.get(name) ?? renderVideo(options);
  keep(name, bytes);
  return bytes;
}

function keep(name: string, bytes: Uint8Array): void {
  kept.delete(name);
  kept.set(name, bytes);
  for (const oldest of [...kept.keys()].slice(0, -KEPT)) kept.delete(oldest);
}
