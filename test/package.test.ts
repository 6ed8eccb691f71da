import { execFile, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { defaultKey } from '../src/sandbox/auth.ts';
import { type Sandbox, startSandbox } from '../src/sandbox/server.ts';
import { program as script } from './support/shell.ts';

const repository = fileURLToPath(new URL('..', import.meta.url));
const manifest = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8')) as {
  version: string;
  scripts: { prepack: string };
  dependencies?: object;
};

let folder: string;
let home: string;
/** The files of the installed package. */
let packed: string[];
/** npm's stderr during the installation. */
let install: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'mgw-package-'));
  const clone = join(folder, 'clone');
  home = join(folder, 'home');
  for (const made of [clone, home, join(clone, 'dist'), join(clone, 'node_modules/.bin')])
    mkdirSync(made, { recursive: true });
  for (const name of ['package.json', 'README.md', 'LICENSE', 'CHANGELOG.md', 'bin', 'docs'])
    cpSync(join(repository, name), join(clone, name), { recursive: true });
  // The build output exists, so the clone needs no build.
  const programs = join(clone, 'node_modules/.bin');
  script(programs, 'rolldown', `cp -r '${join(repository, 'dist')}' dist`);
  writeFileSync(join(clone, 'dist', 'left-from-another-build.cjs'), '');
  writeFileSync(join(home, 'package.json'), '{"private":true}');
  const env = {
    PATH: `${programs}:${process.env['PATH'] ?? ''}`,
    HOME: folder,
    npm_config_cache: join(folder, 'cache'),
  };
  expect(spawnSync('sh', ['-c', manifest.scripts.prepack], { cwd: clone, env }).status).toBe(0);
  // npm packs the clone and installs the tarball. It contacts no registry and ignores this user's settings.
  const flags = [
    '--install-links',
    '--no-update-notifier',
    '--offline',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
  ];
  const npm = spawnSync('npm', ['install', ...flags, clone], { cwd: home, env, encoding: 'utf8' });
  expect(npm.status, npm.stderr).toBe(0);
  install = npm.stderr;
  const installed = join(home, 'node_modules/mgw');
  packed = readdirSync(installed, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(installed, join(entry.parentPath, entry.name)));
}, 120_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the npm tarball', () => {
  it('contains only the program, its documents and its licences', () => {
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
      /^dist\/(mgw\.1|help\.txt)$/,
      /^dist\/sbom\.cdx\.json$/,
    ];
    expect(packed.filter((path) => !patterns.some((pattern) => pattern.test(path)))).toEqual([]);
    for (const pattern of patterns) expect(packed.filter((path) => pattern.test(path))).not.toEqual([]);
    expect(packed).not.toContain('dist/left-from-another-build.cjs');
  });

  it('needs no other package when it is installed, and causes no npm warning', () => {
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
  it('makes a video on the sandbox', () => {
    const config = join(home, '.config/mgw');
    mkdirSync(config, { recursive: true });
    writeFileSync(join(config, 'config.json'), '{"profiles":{"default":{"sandbox":{"pace":"50ms"}}}}', {
      mode: 0o600,
    });
    const line = '--sandbox video c submit boat --model vendor-h3-mini -o boat.mp4';
    const ran = spawnSync(join(home, 'node_modules/.bin/mgw'), line.split(' '), {
      cwd: home,
      env: { PATH: process.env['PATH'], HOME: home },
      encoding: 'utf8',
    });
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
  // The client is not closed, because it must not keep the process alive.
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

  // Checks and compiles like `tsc` in a user's strict project, but does not check the declaration files of Node and the
  // language.
  const compiler = `
    import ts from '${join(repository, 'node_modules/typescript/lib/typescript.js')}';
    const [nodeTypes, ...files] = process.argv.slice(1);
    const options = {
      target: ts.ScriptTarget.ES2022, lib: ['lib.es2022.d.ts'], strict: true, exactOptionalPropertyTypes: true,
      types: ['node'], typeRoots: [nodeTypes], module: ts.ModuleKind.NodeNext, outDir: 'built', rootDir: '.',
    };
    const program = ts.createProgram(files, options);
    const own = program.getSourceFiles().filter(({ fileName }) => !fileName.includes('${repository}'));
    const found = [
      ...program.getOptionsDiagnostics(),
      ...own.flatMap((file) => [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)]),
      // One by one: to emit all at once, the compiler checks every type of Node and of the language.
      ...own.filter(({ isDeclarationFile }) => !isDeclarationFile).flatMap((file) => program.emit(file).diagnostics),
    ];
    const bundler = { moduleResolution: ts.ModuleResolutionKind.Bundler };
    const { resolvedModule } = ts.resolveModuleName('mgw', process.cwd() + '/bundled.ts', bundler, ts.sys);
    console.log(JSON.stringify({
      checked: own.map(({ fileName }) => fileName),
      messages: found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' ')),
      bundled: resolvedModule?.resolvedFileName,
    }));`;

  function compile(files: string[]): { checked: string[]; messages: string[]; bundled: string } {
    const words = ['--input-type=module', '-e', compiler, join(repository, 'node_modules/@types'), ...files];
    const { stdout, stderr } = spawnSync(process.execPath, words, { cwd: home, encoding: 'utf8' });
    expect(stderr).toBe('');
    return JSON.parse(stdout) as ReturnType<typeof compile>;
  }

  it('has the same types for Node and for a bundler, and every documented example compiles', () => {
    const { checked, messages, bundled } = compile([
      'esm.mts',
      'typed.cts',
      ...examples.map(([name]) => name),
    ]);
    expect(messages).toEqual([]);
    for (const kind of ['cts', 'mts'])
      expect(checked.filter((path) => path.endsWith(`/library/library.d.${kind}`))).toHaveLength(1);
    expect(bundled).toMatch(/\/node_modules\/mgw\/dist\/library\/types\/library\/library\.d\.mts$/);
  }, 120_000);

  it('submits, waits and fetches as an ES module and with require, as documented', async () => {
    const built = ['esm.mjs', ...examples.map(([name]) => name.replace('.mts', '.mjs')), 'typed.cjs'];
    // Runs the files one after another in one process. A CommonJS file ends with its last request, so these come last.
    const program = `for (const file of process.argv.slice(1)) { await import(file); console.log('---'); }`;
    const files = [...built.map((name) => join(home, 'built', name)), join(home, 'example.cjs')];
    const env = {
      ...{ PATH: process.env['PATH'], HOME: home, MGW_BASE_URL: gateway.url, MGW_API_KEY: defaultKey },
      ...{ MGW_STATE_DIR: join(home, 'state'), MGW_CONFIG_DIR: join(home, 'config') },
    };
    const words = ['--input-type=module', '-e', program, ...files];
    const { stdout } = await promisify(execFile)(process.execPath, words, { cwd: home, env });
    const [esm, ...shown] = stdout.split('---\n');
    expect(esm).toBe('succeeded 1 true 0\n');
    expect(shown.slice(0, examples.length)).toEqual(
      examples.map(() => expect.stringMatching(/\S/) as string),
    );
    expect(shown.at(-1)?.split('\n').sort()).toEqual([
      '',
      expect.stringMatching(/^\d+$/),
      'succeeded 1 true 0',
    ]);
  });
});

describe('the network stack', () => {
  const network = ['http', 'https', 'tls', 'http2', 'dns', '_http_client', 'internal/deps/undici/undici'];

  const lines = [
    '--version',
    '--help',
    'help exit-codes',
    'jobs ls',
    '--sandbox jobs ls',
    '--sandbox jobs show @last',
    'config list',
    'completion bash',
    'sandbox bill',
    '--sandbox models',
  ];
  // Runs the commands in one process, and prints the network modules that are loaded after each command.
  const tracer = `
    const { join } = require('node:path');
    const [package_, ...lines] = process.argv.slice(1);
    const { main } = require(join(package_, 'bin/load.js')).loader(join(package_, 'dist'), undefined, 'any').load('mgw.cjs');
    void (async () => {
      for (const line of lines) {
        const code = await main(line.split(' '));
        const names = process.moduleLoadList.map((name) => name.replace(/^NativeModule /, ''));
        console.error(JSON.stringify([line, code, names.filter((name) => ${JSON.stringify(network)}.includes(name))]));
      }
      process.exit();
    })();`;

  it('is loaded only by commands that call the gateway', () => {
    const env = { PATH: process.env['PATH'], HOME: home };
    const words = ['-e', tracer, join(home, 'node_modules', 'mgw'), ...lines];
    const { stderr } = spawnSync(process.execPath, words, { cwd: home, env, encoding: 'utf8' });
    const traced = stderr.match(/^\[".*$/gm)?.map((line) => JSON.parse(line) as [string, number, string[]]);
    expect(traced?.slice(0, -1)).toEqual(lines.slice(0, -1).map((line) => [line, 0, []]));
    expect(traced?.at(-1)).toEqual(['--sandbox models', 0, expect.arrayContaining(['_http_client'])]);
  });
});
