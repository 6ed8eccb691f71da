import type { JobState } from '../job.ts';

/** The data embedded in a page as JSON. It contains no key, no signed URL and no absolute path. */
export interface GalleryData {
  /** The version of mgw that made the page. */
  mgw: string;
  /** The time at which the page was made, ISO 8601 in UTC. */
  made: string;
  /** The URL that saves ratings, and its token; absent in a page that is a file. */
  save?: { path: string; token: string };
  /** The command that imports `ratings.json`, and the command that runs `redo.jsonl`. */
  commands: { rate: string; redo: string };
  items: GalleryItem[];
}

/** A job's state on the page. `filtered` is a failure or refusal because of the content. */
export type ShownState = JobState | 'filtered';

/** A job on the page. */
export interface GalleryItem {
  id: string;
  /** The job's `--key`, or `NAME/ID` for a batch row. */
  key?: string;
  protocol: string;
  model?: string;
  state: ShownState;
  /** The time at which the job was created, ISO 8601 in UTC. */
  created: string;
  /** The prompt, or the text to speak. */
  prompt?: string;
  seed?: string;
  /** The requested duration, which may differ from the file's. */
  duration?: string;
  resolution?: string;
  tags?: string[];
  /** The maximum cost, as an exact decimal in plain digits. */
  price?: string;
  /** The currency of the price. */
  currency?: string;
  /**
   * Whether the price was spent. `failed`: the task failed, and the gateway may or may not have charged for it.
   * `doubt`: it is unknown whether the price was spent.
   */
  charge?: 'spent' | 'failed' | 'doubt';
  /** Why there is no result. */
  reason?: string;
  /** The next command to run for the job. */
  command?: string;
  files: GalleryFile[];
  /** The user's rating, from 1 to 5. */
  rating?: number;
  note?: string;
  /** The time of the rating, ISO 8601 in UTC. */
  rated?: string;
  /** The manifest row that remakes the result. */
  redo?: Record<string, unknown>;
  /** Why no manifest row can remake the result. */
  noRedo?: string;
}

/** A job's file that exists. */
export interface GalleryFile {
  /** The file's URL, relative to the page. */
  href: string;
  name: string;
  kind: 'video' | 'audio' | 'other';
  bytes: number;
  /** The delivered properties, such as `2 s, 640x360, 24 fps, no sound`. */
  delivered?: string;
  /** Differences from the request, such as `duration 2 s instead of 4 s`. */
  mismatches?: string[];
  /** The sound's loudness, in the format of {@link loudness}. */
  peaks?: string;
}

/** A job's exported rating, which `mgw jobs rate --import` imports. */
export interface ExportedRating {
  job: string;
  rating?: number;
  note?: string;
  /** The time of the rating, ISO 8601 in UTC. */
  at: string;
}

/** The number of bars in a waveform: a sound is divided into this many equal parts. */
export const parts = 96;

/**
 * Returns the loudness of {@link parts} equal parts of a sound: one digit for each, 9 for the loudest. Samples up to
 * `floor`, in their own unit, are treated as silence.
 */
export function loudness(samples: Int16Array | Float32Array, floor: number): string {
  const length = Math.max(1, Math.floor(samples.length / parts));
  const loudest = Array.from({ length: parts }, (_, part) => {
    let peak = 0;
    for (const sample of samples.subarray(part * length, (part + 1) * length))
      peak = Math.max(peak, Math.abs(sample));
    return peak;
  });
  const maxPeak = Math.max(...loudest, floor);
  return loudest.map((value) => Math.round((9 * value) / maxPeak)).join('');
}
