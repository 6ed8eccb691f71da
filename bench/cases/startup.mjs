// Measures a command's run time, compared with bare Node or one line of code that sends the same request.
const bareTargets = { '--version': 1.15, '--help': 1.6, 'jobs ls': 1.6 };

export default async function* startup(bench) {
  const url = await bench.serve('json');
  for (const node of bench.nodes()) {
    yield* local(bench, node);
    yield* loopback(bench, node, url);
  }
  yield* sdk(bench, url);
}

// Fetches the model list with the SDK that most scripts would use.
async function* sdk(bench, url) {
  const { path, version } = bench.npmPackage('openai', '6');
  const env = { ...bench.env(url), OPENAI_API_KEY: 'x', OPENAI_BASE_URL: `${url}/v1` };
  const line = `import OpenAI from '${path}/index.mjs'; console.log((await new OpenAI().models.list()).data)`;
  const runs = await bench.interleaved(
    bench.rounds(15, 7),
    {
      openai: () => bench.measured([process.execPath, '--input-type=module', '-e', line], { env }),
      models: () => bench.measured([...bench.mgw(), 'models'], { env }),
    },
    { warmUp: true },
  );
  yield {
    figure: 'mgw models',
    value: runs.of('models') * 1000,
    cpu: runs.of('models', 'cpu') * 1000,
    unit: 'ms',
    peer: `openai ${version}`,
    peerValue: runs.of('openai') * 1000,
    ratio: runs.ratio('models', 'openai'),
    cpuRatio: runs.ratio('models', 'openai', 'cpu'),
  };
}

async function* local(bench, node) {
  const env = bench.env('http://127.0.0.1:9');
  const commands = Object.entries(bareTargets);
  const runs = await bench.interleaved(
    bench.rounds(15, 7),
    {
      bare: () => bench.measured([node.path, '-e', '0'], { env }),
      ...Object.fromEntries(
        commands.map(([words]) => [
          words,
          () => bench.measured([...bench.mgw(node.path), ...words.split(' ')], { env, quiet: true }),
        ]),
      ),
    },
    { warmUp: true },
  );
  for (const [words, ratio] of commands) yield row(runs, node, words, 'bare', 'node -e 0', ratio);
}

async function* loopback(bench, node, url) {
  const env = bench.env(url);
  const own = bench.env(url);
  const commands = { models: '/v1/models', 'video c status task_1': '/v1/videos/task_1' };
  for (const [words, path] of Object.entries(commands)) {
    const line = `fetch('${url}${path}', { headers: { authorization: 'Bearer x' } }).then((r) => r.json()).then(console.log)`;
    const contenders = {
      fetch: () => bench.measured([node.path, '-e', line], { env }),
      [words]: () => bench.measured([...bench.mgw(node.path), ...words.split(' ')], { env }),
      minimal: () => bench.measured([...bench.minimal('fetch.mjs', node.path), url + path], { env: own }),
    };
    const runs = await bench.interleaved(bench.rounds(31, 7), contenders, { warmUp: true });
    const bound = { by: 'fetch on its own connection', value: runs.of('minimal') * 1000 };
    yield { ...row(runs, node, words, 'fetch', 'one fetch', 1.1), bound };
  }
}

function row(runs, node, words, peer, peerName, target) {
  return {
    figure: `mgw ${words}, Node ${node.major}`,
    value: runs.of(words) * 1000,
    cpu: runs.of(words, 'cpu') * 1000,
    unit: 'ms',
    peer: peerName,
    peerValue: runs.of(peer) * 1000,
    ratio: runs.ratio(words, peer),
    cpuRatio: runs.ratio(words, peer, 'cpu'),
    target: { ratio: target },
  };
}
