/** What a page knows, as the JSON in it has it. It holds no key, no signed address and no absolute path. */
export interface GalleryData {
  /** mgw's version. */
  mgw: string;
  /** When the page was made, ISO 8601 in UTC. */
  made: string;
  /** Where ratings are saved as they are made; absent in a page that is a file. */
  save?: { path: string; token: string };
  /** The command that takes `ratings.json` in, and the one that makes again what `redo.jsonl` holds. */
  commands: { rate: string; redo: string };
  items: GalleryItem[];
}

/** The state of a job as the page shows it. `filtered` is a failure or refusal because of the content. */
export type ShownState =
  | 'prepared'
  | 'sending'
  | 'unknown'
  | 'queued'
  | 'running'
  | 'succeeded'
  | 'failed'
  | 'rejected'
  | 'filtered';

/** One job. */
export interface GalleryItem {
  id: string;
  /** The `--key`, of a row `NAME/ID`. */
  key?: string;
  protocol: string;
  model?: string;
  state: ShownState;
  /** ISO 8601 in UTC. */
  created: string;
  /** What was asked for. */
  prompt?: string;
  seed?: string;
  /** As asked for; the media tell how long they are. */
  duration?: string;
  resolution?: string;
  tags?: string[];
  /** What it cost at most, an exact decimal in plain digits. */
  price?: string;
  /** The name of the price's currency. */
  currency?: string;
  /** Whether the price was spent. `failed`: the gateway may charge failed tasks or not. `doubt`: unknown. */
  charge?: 'spent' | 'failed' | 'doubt';
  /** Why there is no result. */
  reason?: string;
  /** What to type to get on. */
  command?: string;
  files: GalleryFile[];
  /** 1 to 5. */
  rating?: number;
  note?: string;
  /** When it was rated, ISO 8601 in UTC. */
  rated?: string;
  /** The row of a manifest that makes it again; if there is none, why. */
  redo?: Record<string, unknown>;
  noRedo?: string;
}

/** A file of a job that is there. */
export interface GalleryFile {
  /** Relative address. */
  href: string;
  name: string;
  kind: 'video' | 'audio' | 'other';
  bytes: number;
  /** What was delivered, such as `2 s, 640x360, 24 fps, no sound`. */
  delivered?: string;
  /** Where it differs from the request, each such as `duration 2 s instead of 4 s`. */
  mismatches?: string[];
  /** How loud the sound is from its beginning to its end, a digit from 0 to 9 for each of equal parts. */
  peaks?: string;
}

/** What a page exports of one job, and what `mgw jobs rate --import` takes in. */
export interface ExportedRating {
  job: string;
  rating?: number;
  note?: string;
  /** When it was rated, ISO 8601 in UTC. */
  at: string;
}

/** Into how many parts a sound is divided. */
export const parts = 96;

/**
 * How loud each of equal parts of a sound is, as a digit from 0 to 9, the loudest being 9. `floor` is the loudness of what
 * counts as silence, in the samples' own unit.
 */
export function loudness(samples: Int16Array | Float32Array, floor: number): string {
  const length = Math.max(1, Math.floor(samples.length / parts));
  const loudest = Array.from({ length: parts }, (_, part) => {
    let most = 0;
    for (const sample of samples.subarray(part * length, (part + 1) * length))
      most = Math.max(most, Math.abs(sample));
    return most;
  });
  const most = Math.max(...loudest, floor);
  return loudest.map((value) => Math.round((9 * value) / most)).join('');
}
