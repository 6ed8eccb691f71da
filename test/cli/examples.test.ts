import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { allCommands, loadAll } from '../../src/cli/command-tree.ts';
import { createProgram } from '../../src/cli/program.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { newJobId } from '../../src/ledger/names.ts';
import { hasFfmpeg } from '../sandbox/media/ffmpeg.ts';
import { hasPostgres, PostgresServer } from '../support/postgres.ts';
import { newShell, program, type Shell } from '../support/shell.ts';

const joinStory = 'mgw batch join story.csv -o film.mp4';
const joinWhatIsDone = 'mgw batch join story.csv -o film.mp4 --skip-missing --force';
const joinByName = 'mgw batch join story -o film.mp4 --json';
const noFfmpeg = 'needs ffmpeg';

// Examples that the tests do not run, each with the reason.
const skipped: Record<string, string> = {
  'mgw sandbox start --port 8787': 'serves until it is interrupted',
  'mgw sandbox start --fault submit-reply-lost': 'serves until it is interrupted',
  'mgw sandbox start --balance 100 --per-minute 30': 'serves until it is interrupted',
  'mgw auth login': 'asks at a terminal',
  'mgw config edit': 'opens an editor',
  'EDITOR="code --wait" mgw config edit': 'opens an editor',
  'mgw auth login --base-url https://gateway.example.com': 'asks at a terminal',
  'mgw batch enqueue clips.csv': 'needs a database',
  'mgw batch enqueue clips.csv --concurrency 10 --per-minute 120 --budget 50': 'needs a database',
  'mgw batch enqueue clips --again': 'needs a database',
  'mgw worker -o /clips/{name}/{id}.{ext}': 'needs a database',
  'mgw worker -o out/{name}/{id}.{ext} --max-idle 5m --concurrency 8': 'needs a database',
  'mgw worker -o /clips/{name}/{id}.{ext} --health-file /tmp/mgw-alive': 'needs a database',
  ...(hasFfmpeg ? {} : { [joinStory]: noFfmpeg, [joinWhatIsDone]: noFfmpeg, [joinByName]: noFfmpeg }),
};
// The exit codes of examples that do not exit 0, often because of a placeholder such as TASK.
const exitCodes: Record<string, number> = {
  'mgw jobs resolve @last': 7,
  'mgw batch status clips.csv': 11,
  'mgw batch status clips.csv --json': 11,
  'mgw batch status clips.csv -o clips/{id}.{ext}': 11,
  'mgw api GET /v1/videos/TASK/content > video.mp4': 4,
  'mgw tts "Good morning." --speaker VOICE --sample-rate 16000 -o morning.wav': 4,
};

const repository = fileURLToPath(new URL('../../', import.meta.url));
const { root, parserOutput } = createProgram([], () => Promise.resolve());
await loadAll(root);
const commands = allCommands(root).filter((command) => examplesOf(command).length > 0);

// The `mgw state` commands need a database, because they work on a ledger in PostgreSQL.
const needsDatabase = (command: Command): boolean => pathOf(command).startsWith('mgw state');
const onDatabase = commands.filter(needsDatabase);
const elsewhere = commands.filter((command) => !needsDatabase(command));

let template: Shell;

beforeAll(async () => {
  template = newShell();
  fill(template.home);
  const submits = [
    'mgw --sandbox video a submit "a boat" --model video-a',
    'mgw --sandbox video b submit "a boat" --model Video-B --model-version 2.0',
    'mgw --sandbox video c submit "a boat" --model vendor-h3-mini',
  ];
  const budget = 'mgw --sandbox budget set clips 100';
  for (const line of [...submits, budget]) {
    const { code, stderr } = await template.run(line);
    expect(code, stderr).toBe(0);
  }
});

afterAll(() => template.close());

// Creates the files, folders and profiles that the examples use.
function fill(home: string): void {
  const imported = {
    type: 'prepared',
    protocol: 'c',
    base_url: 'sandbox',
    fingerprint: '',
    account: '',
  };
  const accepted = { type: 'accepted', handle: 'task_1' };
  const files: Record<string, string> = {
    'chapter.txt': 'It was a bright cold day in April.',
    'question.txt': 'Is it raining?',
    'request.json': '{"model":"text-1","input":"Is it raining?"}',
    'key.txt': 'sk-0123456789abcdef0123456789abcdef\n',
    'clips.csv':
      'id,protocol,model,duration,prompt\nintro,c,vendor-h3-mini,5,a boat\noutro,c,vendor-h3-mini,5,a harbour\n',
    'story.csv': 'id,protocol,model,duration,prompt\ns1,c,vendor-h3-mini,5,a boat\n',
    'job.jsonl': `${JSON.stringify({ id: newJobId(0), events: [imported, accepted] })}\n`,
    '.config/mgw/config.json': '{"profiles":{"default":{"sandbox":{"pace":"50ms"}},"work":{},"fleet":{}}}',
  };
  for (const folder of ['.local/state/mgw/jobs', '.config/mgw'])
    mkdirSync(join(home, folder), { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(home, name), text, { mode: 0o600 });
  program(home, 'script.sh', 'exit 0');
  program(join(home, '.bin'), 'aplay', 'cat > /dev/null');
}

function examplesOf(command: Command): string[] {
  const before = parserOutput().length;
  command.outputHelp();
  const help = parserOutput()
    .slice(before)
    .replace(/ \\\n {6}/g, ' ');
  return [...help.matchAll(/^ {2}\$ (.*)$/gm)].map(([, line = '']) => line);
}

// Creates a job in doubt for the example of `jobs resolve`.
async function loseOne(home: string): Promise<void> {
  const ledger = await openFileLedger(join(home, '.local/state/mgw/sandbox/ledger'), () => Date.now());
  const error = { code: 'submit_unknown', message: 'the response was lost' };
  const prepared = {
    type: 'prepared',
    protocol: 'c',
    base_url: 'sandbox',
    fingerprint: 'f',
    account: '',
  } as const;
  await ledger.create(newJobId(Date.now() + 1000), [prepared, { type: 'unknown', error }]);
}

describe.skipIf(!hasPostgres)('the help examples that need a database', () => {
  let server: PostgresServer;

  beforeAll(async () => {
    server = await PostgresServer.open();
  });
  afterAll(() => server.close());

  it.each(onDatabase.map((command) => ({ command, path: pathOf(command) })))(
    'succeed for $path',
    async ({ command }) => {
      const shell = newShell({ MGW_STATE: server.url(await server.database()) });
      fill(shell.home);
      await shell.run('mgw state init');
      for (const example of examplesOf(command)) {
        const { code, stdout, stderr } = await shell.run(example);
        expect(code, `$ ${example}\n${stdout}\n${stderr}`).toBe(0);
      }
      shell.close();
    },
  );
});

describe('the help examples', () => {
  it.each(elsewhere.map((command) => ({ command, path: pathOf(command) })))(
    'work for $path',
    async ({ command }) => {
      const tried = examplesOf(command).filter((example) => skipped[example] === undefined);
      for (const example of tried) {
        const shell = newShell({ MGW_SANDBOX: '1' });
        cpSync(template.home, shell.home, { recursive: true });
        if (example.includes('jobs resolve')) await loseOne(shell.home);
        if (example.includes('batch join')) await shell.run('mgw batch run story.csv -o {id}.mp4');
        const { code, stdout, stderr } = await shell.run(example);
        expect(code, `$ ${example}\n${stdout}\n${stderr}`).toBe(exitCodes[example] ?? 0);
        shell.close();
      }
    },
  );

  it('include every example in the lists of exceptions', () => {
    const all = commands.flatMap(examplesOf);
    expect(all).toEqual(expect.arrayContaining([...Object.keys(skipped), ...Object.keys(exitCodes)]));
  });

  it('include at least one per command, or three if the command has arguments and options', () => {
    const isPage = (command: Command): boolean => command.parent?.name() === 'help';
    const isHidden = (command: Command): boolean => /^(__|help$)/.test(command.name());
    const leaves = allCommands(root).filter(
      (command) => command.commands.length === 0 && !isPage(command) && !isHidden(command),
    );
    expect(leaves.filter((command) => examplesOf(command).length === 0).map(pathOf)).toEqual([]);
    const takes = leaves.filter(
      (command) => command.registeredArguments.length > 0 && command.options.length > 0,
    );
    expect(takes.filter((command) => examplesOf(command).length < 3).map(pathOf)).toEqual([]);
  });
});

describe('README', () => {
  const readme = readFileSync(join(repository, 'README.md'), 'utf8');

  it('begins with a command that saves a video', async () => {
    const [, first = ''] = /```sh\n(.*)\n```/.exec(readme) ?? [];
    const shell = newShell({ MGW_SANDBOX: '1' });
    expect(await shell.run(first)).toMatchObject({ code: 0, stdout: `${join(shell.home, 'boat.mp4')}\n` });
    shell.close();
  });

  it('contains a command that makes a playable video in a clone after npm ci', async () => {
    const [, command = ''] = /^npm ci && (node bin\/mgw\.js .*)$/m.exec(readme) ?? [];
    const shell = newShell();
    symlinkSync(join(repository, 'bin'), join(shell.home, 'bin'));
    const ran = await shell.run(command);
    expect(ran.code, ran.stderr).toBe(0);
    expect(readFileSync(join(shell.home, 'boat.mp4')).toString('latin1', 4, 8)).toBe('ftyp');
    shell.close();
  });
});

it.each(['README.md', 'docs/video.md'])('%s saves each video to a different file', (name) => {
  const page = readFileSync(join(repository, name), 'utf8');
  const files = [...page.matchAll(/^(?:\$ )?mgw .* -o (\S+\.mp4)/gm)].map(([, file]) => file);
  expect(files.length).toBeGreaterThan(3);
  expect(files).toEqual([...new Set(files)]);
});

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}
