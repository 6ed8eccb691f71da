import type { ProtocolName } from '../../../job.ts';

/** The examples in the help of `submit`; a test runs them against the sandbox. */
export const submitExamples: Record<ProtocolName, string> = {
  a: `
Examples:
  $ mgw video a submit "a paper boat at sea" -m video-a -d 8 --resolution 720p --audio -o boat.mp4
  $ mgw video a submit "two boats" -m video-a --sample-count 2 -d 4 -o clip.mp4
  $ mgw video a submit "a boat" -m video-a -d 4 --set parameters.seed=7 --dry-run`,
  b: `
Examples:
  $ mgw video b submit "a paper boat at sea" -m Video-B --model-version 2.0 -d 5 -o boat.mp4
  $ mgw video b submit "a boat" -m Video-B --model-version 2.0 --resolution 720P --no-audio --wait
  $ mgw video b submit "a boat" -m Video-B --model-version 2.0 --set OutputConfig.Duration=5 --dry-run`,
  c: `
Examples:
  $ mgw video c submit "a paper boat at sea" -m vendor-h3-mini -o boat.mp4
  $ mgw video c submit "a boat" -m vendor-h3 -d 8 --resolution 768P --key boat-1 -o boat.mp4
  $ echo "a paper boat" | mgw video c submit - -m vendor-h3-mini --aspect-ratio 9:16
  $ mgw video c submit "a boat" -m vendor-h3-mini --set seed=7 --dry-run`,
};

/** What `--set` takes, in the spelling of each protocol. */
export const setExamples: Record<ProtocolName, string> = {
  a: 'parameters.seed=7',
  b: 'OutputConfig.Duration=5',
  c: 'seconds=5',
};
