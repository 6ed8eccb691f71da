// Measures Protocol A's inline results: a complete `submit -o` with a gateway that streams the video as
// Base64 inside a poll response.
import { rmSync } from 'node:fs';
import { join } from 'node:path';

const mib = 1024 * 1024;

export default async function* inline(bench) {
  for (const size of bench.quick ? [256] : [256, 2048]) {
    const bytes = size * mib;
    const url = await bench.serve('gateway', JSON.stringify({ inlineBytes: bytes }));
    const path = join(bench.folder, 'out.mp4');
    const flags = [
      '--duration',
      '8',
      '--resolution',
      '720p',
      '--audio',
      '--poll-interval',
      '10ms',
      '-q',
      '--new',
      '--force',
    ];
    const args = ['video', 'a', 'submit', 'a boat', '--model', 'm', '-o', path, ...flags];
    // curl receives and base64 decodes. Neither searches for the end of the video, hashes or syncs.
    const peer = `curl -sf ${url}/v1beta/models/m/operations/1 | tail -c +120 | base64 -di > '${path}'; true`;
    for (const node of bench.nodes()) {
      const env = bench.env(url);
      const runs = await bench.interleaved(size > 1000 ? 1 : bench.rounds(3, 1), {
        mgw: () => bench.measuredWriting(path, [...bench.mgw(node.path), ...args], { env }),
        base64: () => bench.measuredWriting(path, ['sh', '-c', peer], { quiet: true }),
      });
      const figure = `inline video of ${size} MiB of JSON, Node ${node.major}`;
      yield {
        figure,
        ...{ value: bytes / 1e6 / runs.of('mgw'), unit: 'MB/s', peer: 'curl to base64 -d' },
        ...{
          peerValue: bytes / 1e6 / runs.of('base64'),
          ratio: runs.ratio('base64', 'mgw'),
          target: { min: 500 },
          // This bound decodes each byte, but does not search for the end of the video, hash or sync.
          bound: { by: 'curl to base64 -d', value: bytes / 1e6 / runs.of('base64') },
        },
      };
      yield { figure: `${figure}, of its CPU`, value: bytes / 1e6 / runs.of('mgw', 'cpu'), unit: 'MB/s' };
      yield { figure: `${figure}, memory`, value: runs.of('mgw', 'rss'), unit: 'MB', target: { max: 120 } };
      rmSync(path, { force: true });
    }
  }
}
