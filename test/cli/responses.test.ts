import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import { speechServer } from '../speech/harness.ts';
import { canaryKey, type User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { httpServer } from '../support/servers.ts';

const running: Sandbox[] = [];
afterEach(async () => {
  for (const sandbox of running.splice(0)) await sandbox.close();
});

async function bench(...faults: string[]): Promise<{ user: User; charges: () => number }> {
  const stateDir = mkdtempSync(join(tmpdir(), 'mgw-responses-'));
  const sandbox = await startSandbox({ stateDir, faults, keys: [canaryKey] });
  running.push(sandbox);
  return { user: userHere(sandbox.url), charges: () => readBill(stateDir).length };
}

const ask = ['responses', 'Say hello', '--model', 'text-1'];
const answer = 'The sandbox was asked: Say hello';

describe('a response', () => {
  it.each([[[]], [['--stream']]])(
    'ends with a newline on stdout, and is part of one JSON document with --json: flags %j',
    async (more) => {
      const { user } = await bench();
      const run = await user.run([...ask, ...more]);
      expect([run.code, run.stdout, run.stderr]).toEqual([0, `${answer}\n`, '']);
      expect((await user.run([...ask, ...more, '--json'])).json).toMatchObject({
        ok: true,
        text: answer,
        response: { status: 'completed', usage: { total_tokens: 8 } },
      });
    },
  );

  it('is requested with the input from standard input, --file, --body or --set', async () => {
    const { user } = await bench();
    writeFileSync(join(user.cwd, 'q.txt'), 'Say hello\n');
    writeFileSync(join(user.cwd, 'b.json'), JSON.stringify({ model: 'text-1', input: 'Say hello' }));
    for (const args of [
      ['-', '--model', 'text-1'],
      ['--file', 'q.txt', '--model', 'text-1'],
      ['--body', '@b.json'],
      ['Say hello', '--body', '{"model":"x","input":"y"}', '--model', 'text-1'],
      ['--body', '{}', '--set', 'model=text-1', '--set', 'input=Say hello'],
    ]) {
      const stdin = args[0] === '-' ? 'Say hello\n' : '';
      const run = await user.run(['responses', ...args], { stdin });
      expect([args, run.code, run.stdout]).toEqual([args, 0, `${answer}\n`]);
      const dry = await user.run(['responses', ...args, '--dry-run', '--json'], { stdin });
      expect(dry.json['request']).toMatchObject({ body: { input: 'Say hello' } });
    }
  });

  it('is printed as it arrives, before the stream ends', async () => {
    let finish: () => void = () => undefined;
    const server = await speechServer((response) => {
      const event = (value: object): string => `data: ${JSON.stringify(value)}\n\n`;
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(event({ type: 'response.output_text.delta', delta: 'Hello you' }));
      finish = () =>
        response.end(
          event({ type: 'response.output_text.delta', delta: '!' }) + event({ type: 'response.completed' }),
        );
    });
    const { child, result } = userHere(server.url).start([...ask, '--stream']);
    const first = await new Promise((resolve) =>
      child.stdout?.once('data', (chunk: Buffer) => resolve(String(chunk))),
    );
    expect(first).toBe('Hello ');
    finish();
    expect(await result).toMatchObject({ code: 0 });
  });

  it('is printed without a key that arrives in pieces, and without sequences that a terminal or a CI runner executes', async () => {
    const deltas = [
      'Say ',
      canaryKey.slice(0, 9),
      canaryKey.slice(9),
      '\n#',
      '#[error]\u001b[',
      '2J\n:',
      ':error::',
    ];
    const server = await speechServer((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const delta of deltas)
        response.write(`data: ${JSON.stringify({ type: 'response.output_text.delta', delta })}\n\n`);
      response.end('data: {"type":"response.completed"}\n\n');
    });
    const user = userHere(server.url, { GITHUB_ACTIONS: 'true' });
    const { stdout, code } = await user.run([...ask, '--stream']);
    expect([code, stdout]).toEqual([0, 'Say [redacted]\n## [error]\\u{1b}[2J\n: :error::\n']);
  });

  it('is not requested with --dry-run', async () => {
    const { user, charges } = await bench();
    const run = await user.run([...ask, '--stream', '--instructions', 'Be short', '--dry-run', '--json']);
    expect(run.json).toMatchObject({
      request: {
        method: 'POST',
        headers: { Authorization: 'Bearer [redacted]' },
        body: { model: 'text-1', input: 'Say hello', instructions: 'Be short', stream: true },
      },
    });
    expect(charges()).toBe(0);
  });
});

describe('an unusual response', () => {
  it('that is a web page may have been charged, and the message says to check the base URL', async () => {
    const console = await httpServer((_, response) => {
      response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>Console</title>');
    });
    const run = await userHere(console.url).run([...ask, '--json']);
    expect(run.json).toMatchObject({
      exit_code: 9,
      error: {
        message: expect.stringMatching(/Console.*check the base URL/) as string,
        charged: 'maybe',
        next: ['mgw', 'doctor'],
      },
    });
  });

  it('is charged once if it has no final event, and the command prints the received text and exits with 9', async () => {
    const { user, charges } = await bench('responses-cut');
    const run = await user.run([...ask, '--stream']);
    expect(run.code).toBe(9);
    expect(answer.startsWith(run.stdout.trimEnd())).toBe(true);
    expect(charges()).toBe(1);
    expect((await user.run([...ask, '--stream', '--json'])).json).toMatchObject({
      error: { code: 'result_corrupt', charged: 'yes', retry: 'never' },
    });
  });

  it('is included in the JSON document, as far as it was received, if the command is interrupted', async () => {
    const server = await speechServer((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: {"type":"response.output_text.delta","delta":"Hello you"}\n\n');
    });
    const { child, result } = userHere(server.url).start([...ask, '--stream', '--json', '-v']);
    // The head arrives in one packet with the text.
    child.stderr.on('data', (chunk: Buffer) => {
      if (String(chunk).includes('200')) child.kill('SIGINT');
    });
    expect((await result).json).toMatchObject({
      exit_code: 130,
      text: 'Hello you',
      error: { charged: 'yes', retry: 'never' },
    });
  });

  it.each([
    ['responses', 'Hi [response-fails]', { exit_code: 5, error: { code: 'server_error' } }],
    ['responses', 'Hi [response-refuses]', { exit_code: 5, error: { code: 'content_policy' } }],
    ['responses', 'Hi [no-balance]', { exit_code: 4, error: { code: 'balance', charged: 'no' } }],
  ])('determines the exit code: mgw %s "%s"', async (command, input, expected) => {
    const { user } = await bench();
    for (const more of [[], ['--stream']]) {
      const run = await user.run([command, input, '--model', 'text-1', '--json', ...more]);
      expect(run.json).toMatchObject(expected);
    }
  });

  it('is printed if it reached its token limit, and the command exits with 9', async () => {
    const { user } = await bench();
    const run = await user.run([...ask, '--set', 'max_output_tokens=2']);
    expect([run.code, run.stdout]).toEqual([9, 'The sandbox\n']);
    expect(run.stderr).toContain('max_output_tokens');
  });

  it('is printed even if the ledger is unusable, because responses are not recorded', async () => {
    const { user } = await bench();
    writeFileSync(join(user.cwd, 'state'), 'a file');
    expect(await user.run(ask)).toMatchObject({ code: 0, stdout: `${answer}\n` });
  });

  it('causes a retry if its status is 429', async () => {
    const { user, charges } = await bench('responses-429x1');
    expect((await user.run(ask)).code).toBe(0);
    expect(charges()).toBe(1);
  });
});

it('mgw responses refuses invalid input, and sends nothing', async () => {
  const { user, charges } = await bench();
  const invalid: [string[], RegExp][] = [
    [['responses', '--model', 'text-1'], /No input/],
    [['responses', 'Hi'], /--model NAME is required[^]*next: mgw models$/m],
    [['responses', 'Hi', '--file', 'x', '--model', 'm'], /cannot be combined/],
    [['responses', '-', '--body', '-', '--model', 'm'], /both be standard input/],
    [['responses', 'Hi', '--model', 'm', '--body', '[]'], /must be an object/],
    [['responses', 'Hi', '--model', 'm', '--body', '{'], /not JSON/],
    [
      ['responses', 'Hi', '--model', 'm', '--body', 'my/body.json'],
      /an @ before its name: --body @my\/body.json/,
    ],
  ];
  for (const [args, message] of invalid) {
    const run = await user.run(args);
    expect([args, run.code, run.stdout]).toEqual([args, 2, '']);
    expect(run.stderr).toMatch(message);
  }
  expect(charges()).toBe(0);
});
