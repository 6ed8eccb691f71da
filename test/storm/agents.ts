import type { ServerResponse } from 'node:http';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { clearTimeout, setTimeout } from 'node:timers';
import { setTimeout as sleep } from 'node:timers/promises';
import { readBill, subjectOf } from '../../src/sandbox/bill.ts';
import { startSandbox } from '../../src/sandbox/server.ts';
import { type AgentOfProcess, type Answered, clients, connectProcess } from '../mcp/client.ts';
import { cleanUp, onEnd } from '../support/clean-ups.ts';
import { newUser, type User } from '../support/cli.ts';
import { httpServer, sendJson } from '../support/servers.ts';
import { pick, type Random, randomFor } from './random.ts';

// Usage:
//   npm run storm -- --agents --prompts 60 --seed 2

/** A gateway that counts its charges by text. */
interface Gateway {
  url: string;
  key?: string;
  /** Whether the gateway also serves speech. */
  speaks: boolean;
  chargesFor(text: string): number;
}

/** Text that several agents request one after the other, and that must be paid for only once. */
interface Wish {
  text: string;
  tool: 'submit_video' | 'speak';
  key: string;
  /** The number of keys used so far. An agent chooses another key only after a lost response. */
  keys: number;
  history: string[];
  end?: 'done' | 'unknown' | 'budget' | 'rejected' | 'failed';
}

const model = 'vendor-h3-mini';
const budget = 'shared';

/**
 * A storm of two MCP servers, the command line, and agents that stop waiting, die and lose their
 * memory. The servers die, too.
 */
class AgentStorm {
  readonly #user: User;
  readonly #random: Random;
  readonly #servers: (Promise<AgentOfProcess> | undefined)[] = [undefined, undefined];
  #calls = 0;
  #kills = 0;

  constructor(user: User, seed: number) {
    this.#user = user;
    this.#random = randomFor(seed, 'agents');
  }

  get counts(): string {
    return `${this.#calls} calls, ${this.#kills} kills`;
  }

  async run(wishes: Wish[], width: number): Promise<void> {
    const remaining = [...wishes];
    const over = new AbortController();
    const killing = this.#killAtRandom(over.signal);
    const work = async (): Promise<void> => {
      for (let wish = remaining.shift(); wish !== undefined; wish = remaining.shift())
        await this.#fulfil(wish);
    };
    await Promise.all(Array.from({ length: width }, work));
    over.abort();
    await killing;
    // Payments that exceeded the budget while dead processes had open reservations may fit now.
    for (const wish of wishes) if (wish.end === 'budget') await this.#fulfil(wish, false);
  }

  async #fulfil(wish: Wish, isStormy = true): Promise<void> {
    wish.end = undefined;
    for (let tries = 0; wish.end === undefined; tries += 1) {
      if (tries === 200) throw new Error(`no end: ${wish.history.join('\n')}`);
      const isCalm = !isStormy || tries > 20;
      // A person uses the command line. People request only texts that still have their first key, because a person who
      // chooses another key deliberately requests another job.
      const isPerson = wish.tool === 'submit_video' && wish.keys === 1 && this.#random() < 0.2;
      await (isPerson ? this.#command(wish, isCalm) : this.#call(wish, isCalm));
    }
  }

  async #command(wish: Wish, isCalm: boolean): Promise<void> {
    const flags = ['-m', model, '--duration', '5', '--key', wish.key, '--budget-name', budget, '--json'];
    const running = this.#user.start(['video', 'c', 'submit', wish.text, ...flags]);
    this.#calls += 1;
    const patience = isCalm || this.#random() < 0.5 ? undefined : this.#random() * 1000;
    const timer =
      patience === undefined ? undefined : setTimeout(() => running.child.kill('SIGKILL'), patience);
    const { code } = await running.result;
    clearTimeout(timer);
    wish.history.push(`command ${wish.key}: ${code}`);
    if (code === 0) wish.end = 'done';
    if (code === 7) wish.end = 'unknown';
    if (code === 12) wish.end = 'budget';
  }

  async #call(wish: Wish, isCalm: boolean): Promise<void> {
    const { tool, key, text } = wish;
    const input =
      tool === 'speak'
        ? { key, text, speaker: 'en_female_1', output: `${text.replaceAll(' ', '-')}.mp3` }
        : { key, model, prompt: text, duration: 5 };
    const patience = new AbortController();
    const gives = !isCalm && this.#random() < 0.5;
    const timer = gives ? setTimeout(() => patience.abort(), this.#random() * 1000) : undefined;
    const which = this.#random() < 0.5 ? 0 : 1;
    this.#calls += 1;
    let answer: Answered | undefined;
    try {
      answer = await (await this.#server(which)).call(tool, input, { signal: patience.signal });
    } catch {
      if (!patience.signal.aborted) this.#servers[which] = undefined;
    }
    clearTimeout(timer);
    wish.history.push(
      `${new Date().toISOString()} ${which} ${key}: ${answer === undefined ? 'lost' : JSON.stringify(answer)}`,
    );
    if (answer === undefined) this.#forget(wish);
    else this.#read(wish, answer);
  }

  // Makes an agent forget a lost response. The agent keeps the key or chooses another one.
  #forget(wish: Wish): void {
    if (this.#random() < 0.5) return;
    wish.keys += 1;
    wish.key = `${wish.text.replaceAll(' ', '-')}-${wish.keys}`;
  }

  #read(wish: Wish, { ok, pending, error, next }: Answered): void {
    const first = next?.arguments['key'];
    if (ok && pending === undefined) wish.end = 'done';
    else if (error?.code === 'conflict' && typeof first === 'string') wish.key = first;
    else if (error?.exit_code === 7) wish.end = 'unknown';
    else if (error?.exit_code === 12) wish.end = 'budget';
    else if (error?.exit_code === 4) wish.end = 'rejected';
    else if (error?.exit_code === 5 || error?.exit_code === 9) wish.end = 'failed';
  }

  #server(which: number): Promise<AgentOfProcess> {
    const kind = pick(
      this.#random,
      clients.map((each) => [each, 1] as const),
    );
    return (this.#servers[which] ??= connectProcess(kind, this.#user, ['mcp', '--budget-name', budget]));
  }

  async #killAtRandom(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(500 + this.#random() * 2000, undefined, { signal }).catch(() => undefined);
      const which = this.#random() < 0.5 ? 0 : 1;
      const agent = await this.#servers[which]?.catch(() => undefined);
      if (agent === undefined || signal.aborted) continue;
      this.#servers[which] = undefined;
      this.#kills += 1;
      const how = pick(this.#random, [
        ['server', 1],
        ['client', 1],
        ['both', 1],
        ['end', 1],
      ] as const);
      if (how === 'server' || how === 'both') void agent.kill();
      if (how === 'client' || how === 'both') agent.die();
      void agent.close().catch(() => undefined);
    }
  }
}

async function ownGateway(random: Random): Promise<Gateway> {
  const charged = new Map<string, number>();
  const server = await httpServer((seen, response) => {
    if (seen.method === 'POST') submit(seen.body, response);
    else if (seen.path === '/v1/models') sendJson(response, { data: [{ id: model, protocol: 'c' }] });
    else sendJson(response, { id: 'task_0001', status: 'queued' });
  });
  const submit = (body: string, response: ServerResponse): void => {
    const { prompt } = JSON.parse(body) as { prompt: string };
    const how = pick(random, [
      ['now', 4],
      ['late', 5],
      ['lost', 1],
      ['busy', 1],
    ] as const);
    if (how === 'busy') {
      sendJson(response, { error: { message: 'busy' } }, 429, { 'retry-after': '0' });
      return;
    }
    charged.set(prompt, (charged.get(prompt) ?? 0) + 1);
    const task = server.create();
    const answer = (): void => sendJson(response, { task_id: task, status: 'queued' });
    if (how === 'lost') response.destroy();
    else setTimeout(answer, how === 'late' ? random() * 1500 : 0);
  };
  return { url: server.url, speaks: false, chargesFor: (text) => charged.get(text) ?? 0 };
}

async function sandbox(seed: number, stateDir: string): Promise<Gateway> {
  const gateway = await startSandbox({ stateDir, seed, paceMs: 200, faults: ['chaos@25%'] });
  onEnd(() => gateway.close());
  const chargesFor = (text: string): number =>
    readBill(stateDir).filter(({ subject }) => subject === subjectOf(text).subject).length;
  return { url: gateway.url, key: gateway.key, speaks: true, chargesFor };
}

/** Runs a storm, and returns the violations. */
async function storm(gateway: Gateway, count: number, seed: number): Promise<string[]> {
  const extra = gateway.key === undefined ? {} : { MGW_API_KEY: gateway.key };
  const user = newUser(gateway.url, extra);
  onEnd(() => rmSync(user.cwd, { recursive: true, force: true }));
  const limit = Math.ceil(count * 0.8) * 5 + 3;
  // Five seconds of video cost 5 credits, and so do ten characters of speech.
  for (const command of [
    ['config', 'set', `prices.c.${model}`, 'second=1'],
    ['config', 'set', 'prices.tts', '10k_characters=5000'],
    ['budget', 'set', budget, String(limit)],
  ]) {
    const { code, stderr } = await user.run(command);
    if (code !== 0) throw new Error(stderr);
  }
  const wishes = Array.from({ length: count }, (_, n): Wish => {
    const text = `boat ${String(n).padStart(5, '0')}`;
    const tool = gateway.speaks && n % 4 === 0 ? 'speak' : 'submit_video';
    return { text, tool, key: `boat-${n}-1`, keys: 1, history: [] };
  });
  const agents = new AgentStorm(user, seed);
  await agents.run(wishes, 6);
  const found: string[] = [];
  let total = 0;
  for (const { text, end, history } of wishes) {
    const charges = gateway.chargesFor(text);
    total += charges;
    const records = recordsOf(user, text);
    if (end === 'done' ? charges === 1 : charges <= (end === 'unknown' || end === 'failed' ? 1 : 0)) continue;
    found.push([`${text} was charged ${charges} times (${end}):`, ...history, ...records].join('\n  '));
  }
  if (total * 5 > limit) found.push(`${total} charges of 5 exceed the budget of ${limit}`);
  const doubts = wishes.filter(({ end }) => end === 'unknown').length;
  const refused = wishes.filter(({ end }) => end === 'budget').length;
  if (refused > 0 && (total + doubts + 1) * 5 <= limit)
    found.push(
      [
        `${refused} were refused although ${total} charges and ${doubts} doubts leave room:`,
        ...wishes.filter(({ end }) => end === 'budget').flatMap(({ history }) => history),
      ].join('\n  '),
    );
  const { stdout } = await user.run(['budget', 'ls', '--json']);
  console.log(
    `${total} charges, ${doubts} in doubt, ${refused} over the budget of ${limit}; ${agents.counts}; ${stdout.replace(/\s+/g, ' ').slice(0, 300)}`,
  );
  return found;
}

// Returns the records of the jobs for a text, to investigate a violation.
function recordsOf(user: User, text: string): string[] {
  const folder = join(user.env['MGW_STATE_DIR'] ?? '', 'jobs');
  const records = readdirSync(folder).map((file) => readFileSync(join(folder, file), 'utf8'));
  return records.filter((each) => each.includes(`"${text}"`));
}

function numberOf(name: string, usual: number): number {
  const [, given] = new RegExp(`--${name}[= ](\\d+)`).exec(process.argv.join(' ')) ?? [];
  return given === undefined ? usual : Number(given);
}

const folder = mkdtempSync(join(tmpdir(), 'mgw-agents-'));
process.env['TMPDIR'] = folder;
const seed = numberOf('seed', Math.floor(Math.random() * 1e6));
const count = numberOf('prompts', 40);
try {
  for (const open of [
    () => ownGateway(randomFor(seed, 'gateway')),
    () => sandbox(seed, join(folder, 'sandbox')),
  ]) {
    const found = await storm(await open(), count, seed);
    for (const each of found) console.error(each);
    if (found.length > 0) process.exitCode = 1;
    await cleanUp();
  }
  console.log(`seed ${seed}`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
