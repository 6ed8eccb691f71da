/** What is billed: the three video protocols, speech and Responses. */
export type Area = 'a' | 'b' | 'c' | 'tts' | 'responses';

/** The areas whose requests become tasks. */
export type VideoArea = 'a' | 'b' | 'c';

/** One model the sandbox offers, with what sets it apart from the others of its area. */
export interface Model {
  id: string;
  area: Area;
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
  { id: 'video-a', area: 'a', audio: true, image: true },
  { id: 'video-a-fast', area: 'a', image: true },
  { id: 'video-a-inline', area: 'a', audio: true, inline: true },
  { id: 'Video-B', area: 'b', versions: ['1.0', '2.0'] },
  { id: 'Video-B-Lite', area: 'b', versions: ['1.0'] },
  { id: 'Video-B-Ext', area: 'b', versions: ['3.0'], extended: true },
  { id: 'vendor-h3', area: 'c' },
  { id: 'vendor-h3-base', area: 'c', selfHosted: true },
  { id: 'vendor-h3-base-fast', area: 'c', selfHosted: true },
  { id: 'vendor-h3-mini', area: 'c', selfHosted: true },
  { id: 'speech-tts-2.0', area: 'tts' },
  { id: 'text-1', area: 'responses' },
];

/** Finds a model of an area by its exact, case-sensitive name. Undefined if the key may not use it. */
export function findModel(
  area: Area,
  id: unknown,
  mayUse: (model: string) => boolean = () => true,
): Model | undefined {
  return MODELS.find((model) => model.area === area && model.id === id && mayUse(model.id));
}
