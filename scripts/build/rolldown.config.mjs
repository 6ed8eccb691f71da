import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { defineConfig } from 'rolldown';
import { minifySync } from 'rolldown/utils';
import { galleryPage } from './gallery-page.mjs';
import { declarations } from './declarations.mjs';
import { thirdPartyLicences } from './licences.mjs';

// commander can start other programs as its subcommands, for which it loads child_process and the network stack
// behind it at every start. mgw has no such command.
const childProcess = "const childProcess = require('node:child_process');";
const withoutChildProcess = {
  name: 'commander-without-child-process',
  transform: {
    filter: { id: /commander\/lib\/command\.js$/ },
    handler(code) {
      if (!code.includes(childProcess))
        throw new Error('commander no longer loads child_process: take this out');
      return code.replace(childProcess, 'let childProcess;');
    },
  },
};

// string-width makes a segmenter and the emoji of Unicode when it is loaded, for which a short command takes as long as for
// all the rest, and needs them for few texts.
const visible =
  '[^\\p{Default_Ignorable_Code_Point}\\p{Control}\\p{Format}\\p{Nonspacing_Mark}\\p{Enclosing_Mark}\\p{Surrogate}]';
const eager = {
  'const segmenter = new Intl.Segmenter();': `let made;
const segmenter = { segment: (text) => (made ??= new Intl.Segmenter()).segment(text) };`,
  'const rgiEmojiRegex = /^\\p{RGI_Emoji}$/v;': `let emoji;
const rgiEmojiRegex = { test: (text) => (emoji ??= new RegExp('^\\\\p{RGI_Emoji}$', 'v')).test(text) };`,
  [`const visibleCharacterRegex = /${visible}/v;`]: `let visible;
const visibles = () => (visible ??= new RegExp(${JSON.stringify(visible)}, 'v'));
const visibleCharacterRegex = { test: (text) => visibles().test(text), [Symbol.search]: (text) => text.search(visibles()) };`,
};
const lazyWidths = {
  name: 'string-width-when-needed',
  transform: {
    filter: { id: /string-width\/index\.js$/ },
    handler: (code) =>
      Object.entries(eager).reduce((text, [statement, lazy]) => {
        if (!text.includes(statement)) throw new Error('string-width has changed: take this out, or mend it');
        return text.replace(statement, () => lazy);
      }, code),
  },
};

// A module of Node's own is loaded by what first uses it, and not with the chunk: most commands use few of those that
// their code could use; and so is ipaddr.js, which makes all of its ranges then. (mgw's own chunks are loaded as the source
// says, so that none is missing later on.)
const loadWhenUsed = {
  name: 'load-when-used',
  renderChunk: (code) =>
    Array.from(
      code.matchAll(/^(?:let|var) (node_\w+|import_ipaddr) = (.*\brequire(?:\("node:[\w/]+"\)|_\w.*));$/gm),
    ).reduce(whenUsed, code),
};

function whenUsed(code, [declaration, name, load]) {
  const uses = code.match(new RegExp(`\\b${name}\\b`, 'g')).length;
  const members = new RegExp(`\\b${name}\\.`, 'g');
  // What is handed on as a whole stays as it is.
  if (code.match(members)?.length !== uses - 1) return code;
  return code
    .replace(new RegExp(`\\bnew ${name}\\.(\\w+)`, 'g'), `new (${name}().$1)`)
    .replace(members, `${name}().`)
    .replace(declaration, `let ${name}_; const ${name} = () => (${name}_ ??= ${load});`);
}

// What every command loads of libraries has short names: it is compiling that a start consists of. mgw's own code keeps
// its names, and so do functions and classes, for what a stack shows.
const shortNames = {
  name: 'short-names',
  transform: {
    order: 'post',
    filter: { id: /node_modules\/(commander|undici)\// },
    handler(code, id) {
      const keepNames = { function: true, class: true };
      const { code: short, errors } = minifySync(id, code, {
        mangle: { toplevel: true, keepNames },
        compress: false,
      });
      if (errors.length > 0) throw new Error(`${id}: ${errors[0].message}`);
      return short;
    },
  },
};

// Neither HTTP/2 nor SOCKS is spoken, nor are forms sent: undici would load Node's HTTP/2, and as much again of its own, at
// every start.
const unspoken = {
  name: 'undici-without-the-unspoken',
  transform: {
    filter: { id: /undici\/lib\/(dispatcher\/(client-h2|socks5-proxy-agent)|web\/fetch\/body)\.js$/ },
    handler: () => "module.exports = () => { throw new Error('it is not spoken'); };",
  },
};

// The MCP server brings a validator for the answers to its own elicitation, which mgw does not use: half of what is loaded
// at its start.
const withoutAjv = {
  name: 'mcp-without-ajv',
  transform: {
    filter: { id: /@modelcontextprotocol\/server\/dist\/shimsNode\.mjs$/ },
    handler(code) {
      if (!code.includes('as DefaultJsonSchemaValidator, process };'))
        throw new Error('the shims of the MCP server have changed: mend this');
      return "import process from 'node:process'; export { process }; export class DefaultJsonSchemaValidator { getValidator() { throw new Error('no validator is loaded'); } }";
    },
  },
};

// undici makes a tree of the names of headers when it is loaded, to have them in lower case; Node does that itself as well.
const withoutTree = {
  name: 'undici-without-its-tree',
  transform: {
    filter: { id: /undici\/lib\/core\/tree\.js$/ },
    handler: () => 'module.exports = { tree: { lookup: () => null } };',
  },
};

// undici brings its parser twice, and takes the one that any processor can run if the other fails: this is that one,
// and the other 70 kB are not read at every start.
const oneParser = {
  name: 'undici-with-one-parser',
  transform: {
    filter: { id: /undici\/lib\/llhttp\/llhttp_simd-wasm\.js$/ },
    handler: () => "module.exports = require('./llhttp-wasm.js');",
  },
};

// Of the constants of the parser undici uses two, and makes forty when it is loaded.
const { ERROR, TYPE } = createRequire(import.meta.url)('undici/lib/llhttp/constants.js');
const fewConstants = {
  name: 'undici-with-few-constants',
  transform: {
    filter: { id: /undici\/lib\/(llhttp\/constants|dispatcher\/client-h1)\.js$/ },
    handler(code, id) {
      if (id.endsWith('constants.js')) return `module.exports = ${JSON.stringify({ ERROR, TYPE })};`;
      if (/\bconstants\.(?!(ERROR|TYPE|js)\b)/.test(code))
        throw new Error(`${id} uses other constants as well: say so here`);
      return code;
    },
  },
};

// V8 takes a text of ASCII as it is, and gives every other one two bytes for each character.
const inAscii = {
  name: 'in-ascii',
  generateBundle(_options, bundle) {
    for (const chunk of Object.values(bundle)) {
      if (chunk.type !== 'chunk') continue;
      if (/(?<!\\)(\\\\)*\\[^\0-\x7f]|\.raw`[^`]*[^\0-\x7f]/.test(chunk.code))
        throw new Error(`${chunk.fileName}: what is escaped there is not ASCII`);
      chunk.code = chunk.code.replace(
        /[^\0-\x7f]/g,
        (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
      );
    }
  },
};

// Files that are always loaded together are one chunk. The network stack is in another chunk than what local commands load.
const always = [
  /rolldown\/runtime/,
  sources(
    'exchange',
    'installation',
    'nearest',
    'cli/main',
    'cli/program',
    'cli/context',
    'cli/io',
    'cli/wait-options',
    'cli/input',
  ),
  sources('cli/output/outcome', 'flows/session', 'flows/settings', 'jobs/order', 'jobs/view'),
  sources('http/failures', 'http/transport-error'),
];
const network = [
  sources('http/client', 'http/connections', 'http/wire-response', 'http/retry', 'http/deadline'),
  sources('http/body', 'http/redacting-client', 'http/reach'),
  sources('files/reused-buffers'),
  /ipaddr/,
];
const undici = [
  /undici\/lib\/(core|dispatcher\/(client|pool|dispatcher|fixed)|handler|llhttp)/,
  sources('http/undici'),
];
const ledger = sources('ledger/file-ledger');
const tables = sources('cli/output/table', 'cli/output/human');
const registry = sources('protocols/registry');
const job = sources('jobs/ref', 'jobs/observe');
const together = {
  groups: [
    { name: 'base', priority: 2, test: matching(always) },
    { name: 'ledger', priority: 1, test: ledger },
    { name: 'table', priority: 1, test: tables },
    { name: 'gateway', priority: 1, test: matching(network), includeDependenciesRecursively: false },
    { name: 'undici', priority: 1, test: matching(undici) },
    { name: 'protocols', priority: 1, test: registry },
    { name: 'job', priority: 0, test: job },
  ],
};

// Its parts require each other, and would be given the faces that they have for `import`.
const postgres = Object.fromEntries(
  ['pg', 'pg-pool', 'pg-protocol', 'pg-connection-string'].map((name) => [
    name,
    createRequire(import.meta.url).resolve(name),
  ]),
);

function matching(patterns) {
  return (id) => patterns.some((pattern) => pattern.test(id));
}

// Matches files of src by their names. Warns of a name that is gone: its file would silently leave the chunk.
function sources(...names) {
  for (const name of names) {
    if (!existsSync(`src/${name}.ts`))
      console.warn(`rolldown.config.mjs: src/${name}.ts is gone, update its chunk`);
  }
  return new RegExp(`src/(${names.join('|')})\\.ts`);
}

const common = {
  platform: 'node',
  // PostgreSQL's own library is never asked for.
  external: [/^node:/, 'pg-native'],
  resolve: { conditionNames: ['node', 'import', 'default'], alias: postgres },
};

const output = {
  format: 'cjs',
  strict: true,
  dynamicImportInCjs: false,
  entryFileNames: '[name].cjs',
  chunkFileNames: '[name]-[hash].cjs',
  minify: { mangle: false, compress: true },
  sourcemap: false,
};

// Written by the program itself, from its commands and flags.
const manPage = {
  name: 'man-page',
  writeBundle() {
    writeFileSync('dist/mgw.1', execFileSync(process.execPath, ['bin/mgw.js', '__man']));
  },
};

// One chunk for each command that is loaded on demand: a local command never reads the network stack. CommonJS, since
// Node loads it in half the time: ES modules are read one by one through the thread pool, and each import of a module
// of Node's own reads all of its members, which loads what lies behind them (bench/cases/startup.mjs).
const program = {
  ...common,
  input: { mgw: 'src/cli/main.ts' },
  preserveEntrySignatures: 'allow-extension',
  plugins: [
    withoutChildProcess,
    lazyWidths,
    unspoken,
    withoutAjv,
    withoutTree,
    oneParser,
    fewConstants,
    loadWhenUsed,
    inAscii,
    shortNames,
    galleryPage(),
    thirdPartyLicences(),
    manPage,
  ],
  output: { ...output, dir: 'dist', codeSplitting: together },
};

// There is one library for all importers: with a second one for ES modules, an MgwError of the one would be none of the
// other. Built by itself, so that no chunk of the program is cut for it; it bundles no package that the program does not.
const asModule = {
  name: 'as-es-module',
  generateBundle(_options, bundle) {
    const { exports } = bundle['library.cjs'];
    const source = `import library from './library.cjs';\n\nexport const { ${exports.join(', ')} } = library;\n`;
    this.emitFile({ type: 'asset', fileName: 'library.mjs', source });
  },
};

const library = {
  ...common,
  input: { library: 'src/library/library.ts' },
  preserveEntrySignatures: 'strict',
  plugins: [unspoken, asModule, declarations('src', 'library/library.ts')],
  // A program's stack traces quote its lines.
  output: {
    ...output,
    dir: 'dist/library',
    minify: { mangle: false, compress: true, codegen: { removeWhitespace: false } },
  },
};

export default defineConfig([program, library]);
