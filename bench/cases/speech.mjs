// Measures saving streamed speech: the audio of JSON frames is written to a file.
import { join } from 'node:path';

const mb = 1e6;

export default async function* speech(bench) {
  const sizes = bench.quick ? [64_000] : [4000, 16_000, 64_000, 1_000_000];
  for (const frameBytes of sizes)
    for (const total of bench.quick ? [256] : [256, 1024]) {
      if (total > 256 && frameBytes !== 64_000) continue;
      const url = await bench.serve('gateway', JSON.stringify({ frameBytes, speechBytes: total * mb }));
      const env = bench.env(url);
      const args = ['tts', 'Good morning.', '--speaker', 'v', '-q', '--new'];
      const path = join(bench.folder, 'out.mp3');
      const from = `${url}/api/v3/tts/unidirectional`;
      const clean = (command, options) => bench.measuredWriting(path, command, options);
      const runs = await bench.interleaved(bench.rounds(5, 1), {
        mgw: () => clean([...bench.mgw(), ...args, '-o', path], { env }),
        minimal: () => clean([...bench.minimal('speech.mjs'), from, path]),
        curl: () => clean([bench.program('curl'), '-sf', '-d', '{}', '-o', path, from]),
      });
      const bound = { by: 'parse, decode, write, sync', value: total / runs.of('minimal') };
      const figure = `speech of ${total} MB in frames of ${frameBytes} bytes`;
      yield {
        figure,
        ...{
          value: total / runs.of('mgw'),
          unit: 'MB/s',
          peer: 'curl, not decoded',
          peerValue: total / runs.of('curl'),
        },
        ...{ ratio: runs.ratio('curl', 'mgw'), target: { min: 250 }, bound },
      };
      yield { figure: `${figure}, of its CPU`, value: total / runs.of('mgw', 'cpu'), unit: 'MB/s' };
      yield { figure: `${figure}, memory`, value: runs.of('mgw', 'rss'), unit: 'MB' };
    }
}
