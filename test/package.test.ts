import { execFile, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import ts from 'typescript';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DEFAULT_KEY } from '../src/sandbox/auth.ts';
import { type Sandbox, startSandbox } from '../src/sandbox/server.ts';
import { program as script } from './support/shell.ts';

const repository = fileURLToPath(new URL('..', import.meta.url));
const manifest = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8')) as {
  version: string;
  files: string[];
  dependencies?: object;
};

let folder: string;
/** A clone as it is packed, and the empty folder that the tarball is installed into. */
let clone: string;
let home: string;
let packed: string[];
/** The stderr of npm during the installation. */
let install: string;

// As on a machine without a network: no registry is contacted, and no setting of this user counts.
const offline = ['--offline', '--ignore-scripts', '--no-audit', '--no-fund'];

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'mgw-package-'));
  clone = join(folder, 'clone');
  home = join(folder, 'home');
  for (const made of [clone, home, join(clone, 'dist'), join(clone, 'node_modules/.bin')])
    mkdirSync(made, { recursive: true });
  for (const name of ['package.json', 'README.md', 'LICENSE', 'CHANGELOG.md', 'bin', 'docs'])
    cpSync(join(repository, name), join(clone, name), { recursive: true });
  // Its build output exists already.
  script(join(clone, 'node_modules/.bin'), 'rolldown', `cp -r '${join(repository, 'dist')}' dist`);
  writeFileSync(join(clone, 'dist', 'left-from-another-build.cjs'), '');
  writeFileSync(join(home, 'package.json'), '{"private":true}');
  const report = npm(['pack', '--json', '--pack-destination', folder], clone);
  const [tarball] = JSON.parse(report.slice(report.indexOf('[\n'))) as [
    { filename: string; files: { path: string }[] },
  ];
  packed = tarball.files.map(({ path }) => path);
  install = npm(['install', ...offline, join(folder, tarball.filename)], home, 'stderr');
}, 120_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

function npm(args: string[], cwd: string, stream: 'stdout' | 'stderr' = 'stdout'): string {
  const env = { PATH: process.env['PATH'], HOME: folder, npm_config_cache: join(folder, 'cache') };
  const run = spawnSync('npm', args, { cwd, env, encoding: 'utf8' });
  if (run.status !== 0) throw new Error(run.stderr);
  return run[stream];
}

function mgw(
  args: string[],
  nodeArgs: string[] = [],
): { status: number | null; stdout: string; stderr: string } {
  const bin = join(home, 'node_modules', 'mgw', 'bin', 'mgw.js');
  const env = { PATH: process.env['PATH'], HOME: home, TRACE_FILE: join(folder, 'trace') };
  return spawnSync(process.execPath, [...nodeArgs, bin, ...args], { cwd: home, env, encoding: 'utf8' });
}

describe('the tarball', () => {
  it('contains the program, its documents and licences, and nothing else', () => {
    const expected = [
      /^package\.json$/,
      /^README\.md$/,
      /^LICENSE$/,
      /^CHANGELOG\.md$/,
      /^bin\/(mgw\.js|load\.js|package\.json)$/,
    ];
    const patterns = [
      ...expected,
      /^docs\/[\w/-]+\.md$/,
      /^docs\/\w+\.(svg|yaml)$/,
      /^dist\/[\w-]+\.cjs$/,
      /^dist\/library\/[\w-]+\.cjs$/,
      /^dist\/library\/library\.mjs$/,
      /^dist\/library\/types\/[\w/-]+\.d\.[cm]ts$/,
      /^dist\/THIRD-PARTY-LICENSES\.txt$/,
      /^dist\/mgw\.1$/,
      /^dist\/sbom\.cdx\.json$/,
    ];
    expect(packed.filter((path) => !patterns.some((pattern) => pattern.test(path)))).toEqual([]);
    for (const pattern of patterns) expect(packed.filter((path) => pattern.test(path))).not.toEqual([]);
    expect(packed).not.toContain('dist/left-from-another-build.cjs');
  });

  it('needs no other package, and causes no warning of npm', () => {
    expect(install).toBe('');
    expect(manifest.dependencies).toBeUndefined();
    expect(existsSync(join(home, 'node_modules', 'commander'))).toBe(false);
  });

  it('includes the licence of every bundled package', () => {
    const text = readFileSync(join(home, 'node_modules/mgw/dist/THIRD-PARTY-LICENSES.txt'), 'utf8');
    for (const name of ['commander', 'conf', 'ora', 'zod', 'tldts', 'undici'])
      expect(text).toMatch(new RegExp(`^${name} \\d+\\.\\d+\\.\\d+ \\((MIT|ISC|BSD-3-Clause)\\)$`, 'm'));
    expect(text).toContain('THE SOFTWARE IS PROVIDED "AS IS"');
  });
});

describe('mgw installed from the tarball', () => {
  it('prints its version', () => {
    const shim = spawnSync(join(home, 'node_modules', '.bin', 'mgw'), ['--version'], { encoding: 'utf8' });
    expect(shim.stdout).toBe(`${manifest.version}\n`);
  });

  it('makes a video on the sandbox', () => {
    expect(mgw(['config', 'set', 'sandbox.pace', '50ms']).status).toBe(0);
    const ran = mgw([
      '--sandbox',
      'video',
      'c',
      'submit',
      'a boat',
      '--model',
      'vendor-h3-mini',
      '-o',
      'boat.mp4',
    ]);
    expect(ran).toMatchObject({ status: 0, stdout: `${join(home, 'boat.mp4')}\n` });
    expect(readFileSync(join(home, 'boat.mp4')).toString('latin1', 4, 8)).toBe('ftyp');
  });
});

describe('the package as a library', () => {
  const program = `
    const { job } = await client.submit({
      protocol: 'c',
      body: { model: 'vendor-h3-mini', prompt: 'a paper boat at sea', duration: 6 },
    });
    const { state } = await client.wait(job.id);
    const { files } = await client.fetch(job.id, { output: FILE });
    console.log(state, files.length, new MgwError('usage', '') instanceof Error, exitCodes.ok);`;
  const byImport = "import { createClient, exitCodes, MgwError } from 'mgw';\nconst client = createClient();";
  const byRequire =
    "const { createClient, exitCodes, MgwError } = require('mgw');\nconst client = createClient();";
  const esm = (file: string): string => `${byImport}${program.replace('FILE', `'${file}'`)}`;
  // Not closed, because it must not keep the process alive.
  const cjs = `${byRequire}\nvoid (async () => {${program.replace('FILE', "'cjs.mp4'")}})();`;
  const blocks = (kind: string): string[] =>
    Array.from(readFileSync(join(repository, 'docs/library.md'), 'utf8').matchAll(/```(\w+)\n([^]*?)```/g))
      .filter(([, found]) => found === kind)
      .map(([, , text = '']) => text);
  const examples = blocks('ts').map((text, index): [string, string] => [`example-${index + 1}.mts`, text]);
  const bodies = `
// @ts-expect-error a misspelt field of a model that the specification lists
() => client.submit({ protocol: 'c', body: { model: 'vendor-h3-mini', prompt: 'a', durration: 6 } });
() => client.submit({ protocol: 'c', body: { model: 'new-model', prompt: 'a', resolution: '4K' } });
() => client.submit({ protocol: 'c', body: { model: 'new-model', durration: 6 }, check: false });
`;
  const sources: Record<string, string> = {
    ...Object.fromEntries(examples),
    'esm.mts': `${esm('esm.mp4')}\n${bodies}`,
    'typed.cts': cjs.replace(
      "const { createClient, exitCodes, MgwError } = require('mgw');",
      "import { createClient, exitCodes, MgwError } from 'mgw';",
    ),
    'plain.mjs': esm('plain.mp4'),
    'plain.cjs': cjs,
    'example.cjs': blocks('js').join('\n'),
  };
  let gateway: Sandbox;

  beforeAll(async () => {
    for (const [name, text] of Object.entries(sources)) writeFileSync(join(home, name), text);
    mkdirSync(join(home, 'config'), { mode: 0o700 });
    writeFileSync(join(home, 'config/config.json'), '{"profiles":{"default":{"poll_interval":"20ms"}}}', {
      mode: 0o600,
    });
    gateway = await startSandbox({ stateDir: join(folder, 'gateway'), paceMs: 50 });
  });

  afterAll(() => gateway.close());

  // As a user's strict project has it: all of the types are checked, those of the package too.
  function compile(options: object, files: string[]): string {
    const compilerOptions = {
      ...{ target: 'es2022', lib: ['es2022'], strict: true, exactOptionalPropertyTypes: true },
      ...{ types: ['node'], typeRoots: [join(repository, 'node_modules/@types')], ...options },
    };
    writeFileSync(join(home, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }));
    const tsc = join(repository, 'node_modules/typescript/bin/tsc');
    return spawnSync(process.execPath, [tsc, '-p', home], { cwd: home, encoding: 'utf8' }).stdout;
  }

  async function run(file: string): Promise<string> {
    const env = {
      ...{ PATH: process.env['PATH'], HOME: home, MGW_BASE_URL: gateway.url, MGW_API_KEY: DEFAULT_KEY },
      ...{ MGW_STATE_DIR: join(home, 'state'), MGW_CONFIG_DIR: join(home, 'config') },
    };
    const ran = await promisify(execFile)(process.execPath, [file], { cwd: home, env });
    return ran.stdout + ran.stderr;
  }

  it('has types for Node, and every example of its page compiles', () => {
    const files = ['esm.mts', 'typed.cts', ...examples.map(([name]) => name)];
    expect(compile({ module: 'nodenext', outDir: 'built' }, files)).toBe('');
  }, 120_000);

  it('has the same types for a bundler', () => {
    const options = { moduleResolution: ts.ModuleResolutionKind.Bundler };
    const { resolvedModule } = ts.resolveModuleName('mgw', join(home, 'bundled.ts'), options, ts.sys);
    expect(resolvedModule?.resolvedFileName).toBe(
      join(realpathSync(home), 'node_modules/mgw/dist/library/types/library/library.d.mts'),
    );
  });

  it.each(['built/esm.mjs', 'built/typed.cjs', 'plain.mjs', 'plain.cjs'])(
    'submits, waits and fetches: %s',
    async (file) => {
      expect(await run(file)).toBe('succeeded 1 true 0\n');
      const saved = file.replace(/.*\/|\.[cm]js$/g, '').replace('typed', 'cjs');
      rmSync(join(home, file === 'plain.cjs' ? 'cjs.mp4' : `${saved}.mp4`));
    },
  );

  it.each([...examples.map(([name]) => `built/${name.replace('.mts', '.mjs')}`), 'example.cjs'])(
    'works as its page shows: %s',
    async (file) => {
      expect(await run(file)).toMatch(/\S/);
    },
  );
});

describe('loading the network stack', () => {
  const network = ['http', 'https', 'tls', 'http2', 'dns', '_http_client', 'internal/deps/undici/undici'];

  // All of Node's own modules that are loaded when the process ends.
  function loaded(args: string[]): string[] {
    const script = join(folder, 'trace.cjs');
    const trace = "require('fs').writeFileSync(process.env.TRACE_FILE, process.moduleLoadList.join('\\n'))";
    writeFileSync(script, `process.on('exit', () => ${trace});`);
    expect(mgw(args, ['--require', script]).status).toBe(0);
    const lines = readFileSync(join(folder, 'trace'), 'utf8').split('\n');
    return lines.map((line) => line.replace(/^NativeModule /, ''));
  }

  it.each([
    '--version',
    '--help',
    'help exit-codes',
    'jobs ls',
    '--sandbox jobs ls',
    '--sandbox jobs show @last',
    'config list',
    'completion bash',
    'sandbox bill',
  ])('is not needed for mgw %s', (line) => {
    const modules = loaded(line.split(' '));
    expect(modules).toContain('fs');
    expect(network.filter((name) => modules.includes(name))).toEqual([]);
  });

  it('is needed for a command that calls the gateway', () => {
    expect(loaded(['--sandbox', 'models'])).toContain('_http_client');
  });
});
