import { execFileSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { defineConfig } from 'rolldown';
import { minifySync } from 'rolldown/utils';
import { galleryPage } from './gallery-page.mjs';
import { declarations } from './declarations.mjs';
import { thirdPartyLicences } from './licences.mjs';

// commander can run other programs as subcommands. To do so, it loads child_process, and with it the network stack, at
// every start. mgw has no such command.
const childProcess = "const childProcess = require('node:child_process');";
const withoutChildProcess = {
  name: 'commander-without-child-process',
  transform: {
    filter: { id: /commander\/lib\/command\.js$/ },
    handler(code) {
      if (!code.includes(childProcess))
        throw new Error('commander no longer loads child_process: remove this plugin');
      return code.replace(childProcess, 'let childProcess;');
    },
  },
};

// When loaded, string-width creates a segmenter and the regular expressions of all emoji, which takes as long as
// everything else in a short command. The plugin defers this to the first use, because text rarely needs them.
const visible =
  '[^\\p{Default_Ignorable_Code_Point}\\p{Control}\\p{Format}\\p{Nonspacing_Mark}\\p{Enclosing_Mark}\\p{Surrogate}]';
const eager = {
  'const segmenter = new Intl.Segmenter();': `let instance;
const segmenter = { segment: (text) => (instance ??= new Intl.Segmenter()).segment(text) };`,
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
        if (!text.includes(statement))
          throw new Error('string-width has changed: remove or adapt this plugin');
        return text.replace(statement, () => lazy);
      }, code),
  },
};

// Loads Node's built-in modules on first use, not with the chunk, because most commands use few of them. Also defers
// ipaddr.js, which computes all its ranges when it is loaded. mgw's own chunks are not deferred, because the
// installation may be replaced while a command runs.
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
  // If the code also uses the module as a value, the module's name must not become a function.
  if (code.match(members)?.length !== uses - 1) return code;
  return code
    .replace(new RegExp(`\\bnew ${name}\\.(\\w+)`, 'g'), `new (${name}().$1)`)
    .replace(members, `${name}().`)
    .replace(declaration, `let ${name}_; const ${name} = () => (${name}_ ??= ${load});`);
}

// Shortens names in the libraries that every command loads, because startup time is mostly compile time. mgw's own
// functions and classes keep their names, for stack traces.
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

// mgw does not use HTTP/2, SOCKS or forms. For them, undici would load Node's HTTP/2 module, and as much code of its
// own, at every start.
const withoutProtocols = {
  name: 'undici-without-unused-protocols',
  transform: {
    filter: { id: /undici\/lib\/(dispatcher\/(client-h2|socks5-proxy-agent)|web\/fetch\/body)\.js$/ },
    handler: () => "module.exports = () => { throw new Error('mgw does not use this protocol'); };",
  },
};

// The MCP server includes a JSON Schema validator for elicitation, which mgw does not use. The validator would be half
// of the code loaded at startup.
const withoutAjv = {
  name: 'mcp-without-ajv',
  transform: {
    filter: { id: /@modelcontextprotocol\/server\/dist\/shimsNode\.mjs$/ },
    handler(code) {
      if (!code.includes('as DefaultJsonSchemaValidator, process };'))
        throw new Error('the shims of the MCP server have changed: adapt this plugin');
      return "import process from 'node:process'; export { process }; export class DefaultJsonSchemaValidator { getValidator() { throw new Error('no validator is bundled'); } }";
    },
  },
};

// pg 8 prints a warning if it finds the password in ~/.pgpass.
const quietPassword = {
  name: 'pg-without-pgpass-warning',
  transform: {
    filter: { id: /pg\/lib\/client\.js$/ },
    handler(code) {
      if (!code.includes(' pgPassDeprecationNotice()'))
        throw new Error(
          'pg no longer warns about ~/.pgpass, or does not read it: remove this plugin, or read the file',
        );
      return code.replace(' pgPassDeprecationNotice()', '');
    },
  },
};

// When loaded, undici builds a tree of header names to convert them to lower case. Without the
// tree, it uses `toLowerCase`.
const withoutTree = {
  name: 'undici-without-its-tree',
  transform: {
    filter: { id: /undici\/lib\/core\/tree\.js$/ },
    handler: () => 'module.exports = { tree: { lookup: () => null } };',
  },
};

// undici has two builds of its parser: one for processors with SIMD, and one for all processors. Only the latter is
// bundled, which saves reading 70 kB at every start.
const oneParser = {
  name: 'undici-with-one-parser',
  transform: {
    filter: { id: /undici\/lib\/llhttp\/llhttp_simd-wasm\.js$/ },
    handler: () => "module.exports = require('./llhttp-wasm.js');",
  },
};

// undici computes forty parser constants when it is loaded, and uses only two of them.
const { ERROR, TYPE } = createRequire(import.meta.url)('undici/lib/llhttp/constants.js');
const fewConstants = {
  name: 'undici-with-few-constants',
  transform: {
    filter: { id: /undici\/lib\/(llhttp\/constants|dispatcher\/client-h1)\.js$/ },
    handler(code, id) {
      if (id.endsWith('constants.js')) return `module.exports = ${JSON.stringify({ ERROR, TYPE })};`;
      if (/\bconstants\.(?!(ERROR|TYPE|js)\b)/.test(code))
        throw new Error(`${id} now uses other constants: add them here`);
      return code;
    },
  },
};

// V8 uses an ASCII source unchanged, and converts any other source to two bytes per character.
const inAscii = {
  name: 'in-ascii',
  generateBundle(_options, bundle) {
    for (const chunk of Object.values(bundle)) {
      if (chunk.type !== 'chunk') continue;
      if (/(?<!\\)(\\\\)*\\[^\0-\x7f]|\.raw`[^`]*[^\0-\x7f]/.test(chunk.code))
        throw new Error(`${chunk.fileName}: an escaped character is not ASCII`);
      chunk.code = chunk.code.replace(
        /[^\0-\x7f]/g,
        (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
      );
    }
  },
};

// Files that are always loaded together form one chunk. The network stack is a separate chunk, which
// local commands do not load.
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
  sources('http/client', 'http/connections', 'http/send-request', 'http/retry', 'http/deadline'),
  sources('http/body', 'http/redacting-client', 'http/reach'),
  sources('media/buffers'),
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

// pg's packages `require` each other, but rolldown would resolve these calls to the packages' `import` entry points.
const postgres = Object.fromEntries(
  ['pg', 'pg-pool', 'pg-protocol', 'pg-connection-string'].map((name) => [
    name,
    createRequire(import.meta.url).resolve(name),
  ]),
);

function matching(patterns) {
  return (id) => patterns.some((pattern) => pattern.test(id));
}

// Matches src files by name. Warns about a name without a file, because a renamed file would silently drop out of the
// chunk.
function sources(...names) {
  for (const name of names) {
    if (!existsSync(`src/${name}.ts`))
      console.warn(`rolldown.config.mjs: src/${name}.ts does not exist: update its chunk`);
  }
  return new RegExp(`src/(${names.join('|')})\\.ts`);
}

const common = {
  platform: 'node',
  // pg-native, an optional binding to PostgreSQL's C library, is never used by mgw.
  external: [/^node:/, 'pg-native'],
  resolve: { conditionNames: ['node', 'import', 'default'], alias: postgres },
  // Rolldown warns about static imports of dynamically imported files, although the commands with these
  // imports are loaded on demand.
  checks: { ineffectiveDynamicImport: false },
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

// Runs the built program to write the man page and the help, which derive from its commands and flags.
const pages = {
  name: 'man-page-and-help',
  writeBundle() {
    rmSync('dist/help.txt', { force: true });
    for (const [page, words] of Object.entries({ 'mgw.1': '__man', 'help.txt': '--help' }))
      writeFileSync(`dist/${page}`, execFileSync(process.execPath, ['bin/mgw.js', words]));
  },
};

// Each command has a chunk, which is loaded on demand. The format is CommonJS, which Node loads in half the time. Node
// reads ES modules one by one through the thread pool. Also, the import of a built-in module reads all its members,
// which loads the modules behind them (bench/cases/startup.mjs).
const program = {
  ...common,
  input: { mgw: 'src/cli/main.ts' },
  preserveEntrySignatures: 'allow-extension',
  plugins: [
    withoutChildProcess,
    lazyWidths,
    withoutProtocols,
    withoutAjv,
    withoutTree,
    oneParser,
    fewConstants,
    quietPassword,
    loadWhenUsed,
    inAscii,
    shortNames,
    galleryPage(),
    thirdPartyLicences(),
    pages,
  ],
  output: { ...output, dir: 'dist', codeSplitting: together },
};

// ES modules import the CommonJS library. With two copies, an MgwError of one would not be an instance of the other's
// class. The library is a separate build, so the program's chunks do not change. Both builds bundle the same packages.
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
  plugins: [withoutProtocols, quietPassword, asModule, declarations('src', 'library/library.ts')],
  // Whitespace is not removed, because stack traces in the user's program quote lines of the library.
  output: {
    ...output,
    dir: 'dist/library',
    minify: { mangle: false, compress: true, codegen: { removeWhitespace: false } },
  },
};

export default defineConfig([program, library]);
