import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { write } from '../../io.ts';
import { repeatable, single, wholeNumber } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import { credits } from '../../../config/rules.ts';
import { parseDuration } from '../../../clock.ts';
import { sandboxFolder } from '../../../flows/settings.ts';
import type { Sandbox } from '../../../sandbox/server.ts';

/** The options that `mgw sandbox start` and `exec` share. */
export interface ServeOptions {
  port?: number;
  /** The duration of one generation, in ms. */
  pace?: number;
  fault?: string[];
  seed?: number;
  /** The initial balance, in credits. */
  balance?: number;
  concurrency?: number;
  perMinute?: number;
  key?: string[];
  voice?: string[];
}

/** Adds the flags that `mgw sandbox start` and `exec` share. */
export function addServeOptions(command: Command): void {
  command
    .addOption(single('--pace <duration>', 'duration of one generation (default 3s)', parseDuration))
    .addOption(
      repeatable(
        '--fault <name>',
        'simulate a fault, such as submit-reply-lost or poll-502x3; see mgw sandbox faults',
      ),
    )
    .addOption(single('--seed <n>', 'make ids and chaos faults reproducible', wholeNumber(0)))
    .addOption(
      single('--balance <credits>', 'refuse calls after this much is spent (default: no limit)', credits),
    )
    .addOption(
      single(
        '--concurrency <n>',
        'maximum number of video tasks, and of speech streams, at a time; further calls get HTTP 429 (default: no limit)',
        wholeNumber(1),
      ),
    )
    .addOption(
      single(
        '--per-minute <n>',
        'maximum number of paid calls in 60 s; further calls get HTTP 429 with Retry-After (default: no limit)',
        wholeNumber(1),
      ),
    )
    .addOption(
      repeatable('--key <key>', 'issue an additional key; KEY=MODEL,MODEL limits it to these models'),
    )
    .addOption(repeatable('--voice <name>', "accept this speaker in addition to the sandbox's speakers"));
}

/**
 * Starts a sandbox whose state is stored in `stateDir`.
 * @throws MgwError('usage') if a fault or key is invalid, or the port is in use.
 */
export async function serve(context: Context, stateDir: string, options: ServeOptions): Promise<Sandbox> {
  const { limitsOf, startSandbox } = await import('../../../flows/open-sandbox.ts');
  const { resetFaultCounts } = await import('../../../sandbox/faults.ts');
  const settings = await context.settings();
  const { fault: faults = [], key: keys = [], voice: voices = [], port } = options;
  const isChaos = faults.some((fault) => /(^|[\s,])chaos/.test(fault));
  const seed = options.seed ?? (isChaos ? randomInt(1e9) : undefined);
  const sandbox = await startSandbox({
    ...{ stateDir, port, faults, keys, voices, seed },
    paceMs: options.pace ?? settings.sandboxPaceMs.value,
    limits: limitsOf(settings, options),
  });
  resetFaultCounts(stateDir);
  if (seed !== options.seed) context.progress.note(`To reproduce these faults: --seed ${seed ?? ''}`);
  return sandbox;
}

/** Returns the folder in which the sandbox gateway stores its tasks and bill. */
export function gatewayFolder(sandbox: string): string {
  return join(sandbox, 'gateway');
}

/** `mgw sandbox start`: prints the variables to export, and serves the sandbox until interrupted. */
export function registerStart(command: Command, run: Run): void {
  command.addOption(
    single('--port <n>', 'port to listen on (default: any free port)', wholeNumber(0, 65_535)),
  );
  addServeOptions(command);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw sandbox start --port 8787\n  $ mgw sandbox start --fault submit-reply-lost\n  $ mgw sandbox start --balance 100 --per-minute 30',
    )
    .action(() => run(command, (context) => start(context, command.opts())));
}

async function start(context: Context, options: ServeOptions): Promise<Outcome> {
  const sandbox = await serve(context, gatewayFolder(sandboxFolder(await context.settings())), options);
  const variables = { MGW_BASE_URL: sandbox.url, MGW_API_KEY: sandbox.key, MGW_SANDBOX: sandbox.url };
  const lines = Object.entries(variables).map(([name, value]) => `export ${name}=${value}\n`);
  const json = { url: sandbox.url, key: sandbox.key, file_url: sandbox.fileUrl, store: sandbox.store };
  await write(context.io.stdout, context.globals.json ? `${JSON.stringify(json)}\n` : lines.join(''));
  context.progress.note('The sandbox is running. Press Ctrl-C to stop it.');
  await interrupted();
  await sandbox.close();
  return { json: {}, silent: true };
}

function interrupted(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => resolve());
  });
}
