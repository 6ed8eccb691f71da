import type { ProtocolName } from '../../../job.ts';

/** The examples in the help of `submit`; a test runs them against the sandbox. */
export const submitExamples: Record<ProtocolName, string> = {
  a: `
Examples:
  $ mgw video a submit "a paper boat at sea" --model video-a --duration 8 --resolution 720p --audio -o boat.mp4
  $ mgw video a submit --model video-a --prompt "two boats" --sample-count 2 --duration 4 -o clip.mp4`,
  b: `
Examples:
  $ mgw video b submit "a paper boat at sea" --model Video-B --model-version 2.0 --duration 5 -o boat.mp4
  $ mgw video b submit --model Video-B --model-version 2.0 --prompt "a boat" --resolution 720P --no-audio --wait`,
  c: `
Examples:
  $ mgw video c submit "a paper boat at sea" --model vendor-h3-mini -o boat.mp4
  $ mgw video c submit --model vendor-h3 --prompt "a boat" --duration 8 --resolution 768P --key boat-1 -o boat.mp4
  $ echo "a paper boat" | mgw video c submit - --model vendor-h3-mini --aspect-ratio 9:16
  $ mgw video c submit --model vendor-h3-mini --prompt "a boat" --dry-run`,
};
