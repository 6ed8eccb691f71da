import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { settableKeys } from '../../src/config/setting-names.ts';
import { checkConfig } from '../../src/config/schema.ts';
import { isObject, tryParseJson } from '../../src/json.ts';
import type { Flag } from '../../src/protocols/protocol.ts';
import { protocols } from '../../src/protocols/registry.ts';
import { speechFlags } from '../../src/speech/flags.ts';
import { newShell, program, type Shell } from '../support/shell.ts';

const read = (name: string): string =>
  readFileSync(fileURLToPath(new URL(`../../docs/${name}.md`, import.meta.url)), 'utf8');

const blocks = (page: string, language: string): string[] =>
  Array.from(page.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms')), ([, block = '']) => block);

const commandsOf = (page: string): string[] => blocks(page, 'sh').join('').trimEnd().split('\n');

describe.each(['video', 'speech', 'configuration'])('docs/%s.md, executed line by line in one shell,', (name) => {
  const page = read(name);
  let shell: Shell;

  beforeAll(() => {
    shell = newShell({ MGW_SANDBOX: '1' });
    fill(shell.home);
  });

  afterAll(() => shell.close());

  it('contains commands', () => expect(commandsOf(page).length).toBeGreaterThan(1));

  it.each(commandsOf(page))('contains the working command %s', async (command) => {
    const { code, stderr } = await shell.run(command);
    expect(code, stderr).toBe(0);
  });
});

// Creates the files that the commands in the documentation read.
function fill(home: string): void {
  const pixel =
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  writeFileSync(join(home, 'first.png'), Buffer.from(pixel, 'base64'));
  writeFileSync(join(home, 'chapter.txt'), 'It was a bright cold day in April.\nThe clocks were striking thirteen.\n');
  writeFileSync(join(home, 'request.json'), blocks(read('video'), 'json')[0] ?? '');
  const config = join(home, '.config/mgw');
  mkdirSync(config, { recursive: true });
  writeFileSync(join(config, 'config.json'), '{"profiles":{"default":{"sandbox":{"pace":"50ms"}}}}', { mode: 0o600 });
  program(join(home, '.bin'), 'ffplay', 'cat > heard.mp3 && test -s heard.mp3');
}

const longName = ({ flags }: Flag): string => /--[\w-]+/.exec(flags)?.[0] ?? '';

describe('docs/video.md', () => {
  it.each(Object.values(protocols))('lists every flag of Protocol $name with its field', ({ name, flags }) => {
    const [, section = ''] = read('video').split(`## Protocol ${name.toUpperCase()}\n`);
    const [own = ''] = section.split('\n## ');
    const rows = own.split('\n').filter((line) => line.startsWith('| `--'));
    const isThere = (flag: Flag): boolean =>
      rows.some((row) => row.startsWith(`| \`${longName(flag)}\``) && row.includes(`\`${flag.field}\``));
    expect(flags.filter((flag) => !isThere(flag)).map(longName)).toEqual([]);
  });
});

describe('docs/speech.md', () => {
  it('lists every flag that sets a field', () => {
    const missing = speechFlags.map(longName).filter((flag) => !read('speech').includes(`\`${flag}`));
    expect(missing).toEqual([]);
  });
});

describe('docs/configuration.md', () => {
  const page = read('configuration');

  it('lists every setting', () => {
    expect(settableKeys.filter((key) => !page.includes(`\`${key}\``))).toEqual([]);
  });

  it('contains a valid config file', () => {
    const shown = tryParseJson(blocks(page, 'json')[0] ?? '');
    expect(isObject(shown) && checkConfig(shown)).toHaveProperty('file.profile', 'work');
  });
});
