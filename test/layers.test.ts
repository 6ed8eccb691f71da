import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';

const repository = fileURLToPath(new URL('..', import.meta.url));
const cruiser = join(repository, 'node_modules/dependency-cruiser/bin/dependency-cruise.mjs');
const folders: string[] = [];

interface Cruised {
  modules: { source: string }[];
  summary: {
    violations: { from: string; to: string; rule: { name: string } }[];
    ruleSetUsed: { forbidden: { name: string }[] };
  };
}

async function cruise(cwd: string): Promise<Cruised> {
  const args = [
    cruiser,
    '--config',
    join(repository, '.dependency-cruiser.mjs'),
    '--output-type',
    'json',
    'src',
  ];
  // dependency-cruiser exits with the number of violations, so the call fails, but the report is on stdout.
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd, maxBuffer: 2 ** 28 }).catch(
    (error: unknown) => error as { stdout: string },
  );
  return JSON.parse(stdout) as Cruised;
}

// For each rule, an import that breaks only that rule. Some imports load only types, or files that do not exist.
const broken: [rule: string, from: string, to: string][] = [
  ['vocabulary-imports-no-folder', 'src/job.ts', 'src/http/leaf.ts'],
  ['media-looks-down', 'src/media/up.ts', 'src/files/leaf.ts'],
  ['files-looks-down', 'src/files/up.ts', 'src/http/leaf.ts'],
  ['http-looks-down', 'src/http/up.ts', 'src/payment/leaf.ts'],
  ['ledger-looks-down', 'src/ledger/up.ts', 'src/payment/leaf.ts'],
  ['protocols-looks-down', 'src/protocols/up.ts', 'src/jobs/leaf.ts'],
  ['store-looks-down', 'src/store/up.ts', 'src/ledger/leaf.ts'],
  ['budget-looks-down', 'src/budget/up.ts', 'src/jobs/leaf.ts'],
  ['payment-looks-down', 'src/payment/up.ts', 'src/jobs/leaf.ts'],
  ['jobs-looks-down', 'src/jobs/up.ts', 'src/speech/leaf.ts'],
  ['config-looks-down', 'src/config/up.ts', 'src/http/leaf.ts'],
  ['speech-looks-down', 'src/speech/up.ts', 'src/flows/leaf.ts'],
  ['responses-looks-down', 'src/responses/up.ts', 'src/jobs/leaf.ts'],
  ['flows-looks-down', 'src/flows/up.ts', 'src/batch/leaf.ts'],
  ['gallery-looks-down', 'src/gallery/up.ts', 'src/batch/leaf.ts'],
  ['batch-looks-down', 'src/batch/up.ts', 'src/gallery/leaf.ts'],
  ['library-looks-down', 'src/library/up.ts', 'src/cli/leaf.ts'],
  ['mcp-looks-down', 'src/mcp/up.ts', 'src/cli/leaf.ts'],
  ['cli-looks-down', 'src/cli/up.ts', 'src/library/leaf.ts'],
  ['every-folder-has-a-layer', 'src/unnamed/new.ts', 'src/errors.ts'],
  ['protocols-touch-nothing', 'src/protocols/a/disk.ts', 'node:fs'],
  ['protocols-stand-alone', 'src/protocols/a/sibling.ts', 'src/protocols/b/leaf.ts'],
  ['jobs-name-no-protocol', 'src/jobs/names.ts', 'src/protocols/registry.ts'],
  ['conf-has-one-user', 'src/config/second.ts', 'conf'],
  ['undici-has-one-folder', 'src/jobs/asks.ts', 'undici/lib/dispatcher/client.js'],
  ['the-client-speaks-through-undici', 'src/cli/static.ts', 'node:http'],
  ['the-client-speaks-through-undici', 'src/cli/typed.ts', 'type node:net'],
  ['the-client-speaks-through-undici', 'src/http/late.ts', 'late node:tls'],
  ['sandbox-shares-nothing-with-the-client', 'src/sandbox/shares.ts', 'src/errors.ts'],
  ['a-page-runs-in-a-browser', 'src/gallery/page/reads.ts', 'src/json.ts'],
  ['no-circles', 'src/cli/circle.ts', 'src/cli/leaf-of-circle.ts'],
  ['no-unresolved', 'src/cli/lost.ts', './nowhere.ts'],
];

// Imports that break no rule.
const kept: [from: string, to: string][] = [
  ['src/cli/main.ts', 'src/jobs/leaf.ts'],
  ['src/cli/main.ts', 'src/protocols/registry.ts'],
  ['src/cli/main.ts', 'src/flows/leaf.ts'],
  ['src/library/opens.ts', 'src/flows/leaf.ts'],
  ['src/jobs/uses.ts', 'src/http/leaf.ts'],
  ['src/jobs/uses.ts', 'src/protocols/protocol.ts'],
  ['src/http/uses.ts', 'src/errors.ts'],
  ['src/config/store.ts', 'conf'],
  ['src/protocols/registry.ts', 'src/protocols/a/leaf.ts'],
  ['src/sandbox/uses.ts', 'src/sandbox/leaf.ts'],
  ['src/sandbox/listens.ts', 'node:http'],
  ['src/gallery/listens.ts', 'src/sandbox/leaf.ts'],
  ['src/gallery/page/shows.ts', 'src/gallery/data.ts'],
];

function fixture(): string {
  const folder = mkdtempSync(join(tmpdir(), 'mgw-layers-'));
  folders.push(folder);
  cpSync(join(repository, 'tsconfig.json'), join(folder, 'tsconfig.json'));
  symlinkSync(join(repository, 'node_modules'), join(folder, 'node_modules'));
  const imports = new Map<string, string[]>([['src/cli/leaf-of-circle.ts', ['./circle.ts']]]);
  for (const [from, to] of [...broken.map(([, from, to]) => [from, to] as const), ...kept]) {
    imports.set(from, [...(imports.get(from) ?? []), to]);
    if (to.startsWith('src/') && !imports.has(to)) imports.set(to, []);
  }
  for (const [path, of] of imports) put(folder, path, of);
  return folder;
}

function put(folder: string, path: string, imports: readonly string[]): void {
  const up = '../'.repeat(path.split('/').length - 1);
  const lines = imports.map((to) => {
    const [, how = '', name = ''] = /^(type |late )?(.*)$/.exec(to.replace(/^src\//, `${up}src/`)) ?? [];
    if (how === 'late ') return `void import('${name}');`;
    return how === 'type ' ? `import type * as unused from '${name}';` : `import '${name}';`;
  });
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), [...lines, 'export {};', ''].join('\n'));
}

afterAll(() => folders.forEach((folder) => rmSync(folder, { recursive: true })));

// `npm run layers` checks the rules for every module.
describe('the lint rules of the layers', () => {
  it('detect every forbidden import, and accept every allowed one', async () => {
    const { summary } = await cruise(fixture());
    const found = summary.violations.map(({ rule, from, to }) => `${rule.name}: ${from} → ${to}`);
    for (const [rule, from] of broken)
      expect(found).toContainEqual(expect.stringContaining(`${rule}: ${from} `));
    const circle = found.filter((line) => line.startsWith('no-circles'));
    expect(circle.length).toBeGreaterThan(0);
    expect(found).toHaveLength(broken.length - 1 + circle.length);
    expect([...new Set(broken.map(([rule]) => rule))].sort()).toEqual(
      summary.ruleSetUsed.forbidden.map(({ name }) => name).sort(),
    );
  });
});
