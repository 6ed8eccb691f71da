/** What is billed: the three video protocols, speech and Responses. */
export type Area = 'a' | 'b' | 'c' | 'tts' | 'responses';

/** The areas whose requests become tasks. */
export type VideoArea = 'a' | 'b' | 'c';

/** One model the sandbox offers, with what sets it apart from the others of its area. */
export interface Model {
  id: string;
  area: Area;
  /** Credits for a second of video; for `responses` for a thousand tokens. */
  rate: number;
  /** B: the versions that may be asked for (specification 2.7). */
  versions?: readonly string[];
  /** C: self-hosted models pass values on that the official one refuses (specification 7, 8). */
  selfHosted?: true;
  /** A: whether `generateAudio` and `image` are supported, and whether results come inside the operation. */
  audio?: true;
  image?: true;
  inline?: true;
  /** B: wants `ExtInfo` serialised twice (specification 2.3). */
  extended?: true;
}

/** Every model of the sandbox. The names of C are the specification's; it leaves the others open. */
export const MODELS: readonly Model[] = [
  { id: 'video-a', area: 'a', rate: 12, audio: true, image: true },
  { id: 'video-a-fast', area: 'a', rate: 6, image: true },
  { id: 'video-a-inline', area: 'a', rate: 12, audio: true, inline: true },
  { id: 'Video-B', area: 'b', rate: 10, versions: ['1.0', '2.0'] },
  { id: 'Video-B-Lite', area: 'b', rate: 5, versions: ['1.0'] },
  { id: 'Video-B-Ext', area: 'b', rate: 15, versions: ['3.0'], extended: true },
  { id: 'vendor-h3', area: 'c', rate: 10 },
  { id: 'vendor-h3-base', area: 'c', rate: 4, selfHosted: true },
  { id: 'vendor-h3-base-fast', area: 'c', rate: 3, selfHosted: true },
  { id: 'vendor-h3-mini', area: 'c', rate: 2, selfHosted: true },
  { id: 'text-1', area: 'responses', rate: 1 },
];

/** The model of an area by its exact name: letter case counts. */
export function findModel(area: Area, id: unknown): Model | undefined {
  return MODELS.find((model) => model.area === area && model.id === id);
}
