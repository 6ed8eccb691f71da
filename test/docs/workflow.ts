import { spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import type { Shell } from '../support/shell.ts';

interface Step {
  id?: string;
  run?: string;
  uses?: string;
}

interface Workflow {
  env?: Record<string, string>;
  jobs: Record<string, { steps: Step[] }>;
}

/** What a run of a workflow came to. */
export interface WorkflowRun {
  /** Of the first step that failed, else 0. */
  code: number;
  log: string;
  summary: string;
}

/**
 * Runs the `run` steps of a workflow as a GitHub runner does, each job on a machine that has no ledger yet; the artifacts and
 * caches of `uses` are the folder that all of them share. `onLog` sees the log as it grows, and may interrupt a step.
 */
export async function runWorkflow(
  text: string,
  shell: Shell,
  onLog: (log: string, interrupt: () => void) => void = () => undefined,
): Promise<WorkflowRun> {
  const { env, jobs } = parse(text) as Workflow;
  const [output, summary] = [join(shell.home, 'OUTPUT'), join(shell.home, 'SUMMARY')];
  const variables = {
    ...shell.env,
    ...env,
    CI: 'true',
    GITHUB_ACTIONS: 'true',
    GITHUB_OUTPUT: output,
    GITHUB_STEP_SUMMARY: summary,
  };
  const ran: WorkflowRun = { code: 0, log: '', summary: '' };
  for (const { steps } of Object.values(jobs)) {
    const isCached = steps.some(({ uses }) => uses?.startsWith('actions/cache/restore') === true);
    if (!isCached) rmSync(ledgerIn(shell), { recursive: true, force: true });
    const outputs: Record<string, string> = {};
    for (const { id, run } of steps) {
      if (run === undefined || ran.code !== 0) continue;
      writeFileSync(output, '');
      const script = run.replace(/\$\{\{ *(.*?) *\}\}/g, (_, name: string) => valueOf(name, outputs));
      ran.code = await runStep(script, shell.home, variables, (log, interrupt) => {
        ran.log += log;
        onLog(ran.log, interrupt);
      });
      for (const [name, value] of outputsIn(readFileSync(output, 'utf8')))
        outputs[`steps.${id ?? ''}.outputs.${name}`] = value;
    }
  }
  return { ...ran, summary: existsSync(summary) ? readFileSync(summary, 'utf8') : '' };
}

// The sandbox's tasks are at the gateway; what a runner does not keep is the ledger.
function ledgerIn({ home }: Shell): string {
  return join(home, '.local/state/mgw/sandbox/ledger');
}

function valueOf(name: string, outputs: Record<string, string>): string {
  if (name === 'github.run_id') return '4711';
  const value = outputs[name];
  if (value === undefined) throw new Error(`nothing gave \${{ ${name} }}`);
  return value;
}

function outputsIn(text: string): [string, string][] {
  const found = text.matchAll(/^(\w+)<<(.+)\n([^]*?)\n\2$/gm);
  return Array.from(found, ([, name = '', , value = '']) => [name, value]);
}

function runStep(
  script: string,
  cwd: string,
  env: NodeJS.ProcessEnv,
  onLog: (log: string, interrupt: () => void) => void,
): Promise<number> {
  const child = spawn('bash', ['--norc', '-e', '-c', script], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  const interrupt = (): void => void process.kill(-(child.pid ?? 0), 'SIGINT');
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (log: string) => onLog(log, interrupt));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve(code ?? 130));
  });
}
