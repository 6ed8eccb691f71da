import { existsSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { beforeEach, expect, it } from 'vitest';
import { describeFleet } from '../batch/fleet/place.ts';
import { clips } from '../batch/scene.ts';
import { onEnd } from '../support/clean-ups.ts';
import { newShell, type Shell } from '../support/shell.ts';
import { runWorkflow } from './workflow.ts';

const page = readFileSync(fileURLToPath(new URL('../../docs/fleet.md', import.meta.url)), 'utf8');
const [recipe = '', manifest = ''] = Array.from(page.matchAll(/```yaml\n([^]*?)```/g), ([, text]) => text);

interface Manifest {
  spec: {
    template: {
      spec: {
        terminationGracePeriodSeconds: number;
        containers: [{ args: string[]; livenessProbe: { exec: { command: string[] } } }];
      };
    };
  };
}

const quoted = (word: string): string => `'${word}'`;

describeFleet('docs/fleet.md', {}, (place) => {
  let shell: Shell;
  beforeEach(() => {
    shell = newShell({
      MGW_STATE: place.url(),
      MGW_BASE_URL: place.gateway.url,
      MGW_API_KEY: 'sk-0123456789abcdef',
    });
    onEnd(() => shell.close());
    const rows = [0, 1, 2].map((n): [string, string] => [`row-${n}`, `prompt ${n}`]);
    writeFileSync(join(shell.home, 'clips.csv'), clips(...rows));
  });

  const paid = (): unknown[] => [...place.gateway.charges.values()];

  it('has a recipe of jobs that carries a batch out, and pays nothing when it is run again', async () => {
    // What a runner has of its own: the package, the secrets, and not the time to wait for nothing.
    const text = recipe
      .replaceAll('npm install --global "$MGW_PACKAGE"', 'mgw --version')
      .replaceAll(/\$\{\{ (?:secrets|vars)\.(\w+) \}\}/g, (_, name: string) => shell.env[name] ?? '')
      .replace('--max-idle 2m', '--max-idle 1s --poll-interval 10ms');
    for (let runs = 0; runs < 2; runs += 1) {
      const { code, log } = await runWorkflow(text, shell);
      expect(code, log).toBe(0);
    }
    expect(existsSync(join(shell.home, 'out/row-2.mp4'))).toBe(true);
    expect(paid()).toEqual([1, 1, 1]);
  });

  it('has a manifest whose worker works, and whose probe tells whether it lives', async () => {
    const { terminationGracePeriodSeconds: grace, containers } = (parse(manifest) as Manifest).spec.template
      .spec;
    const [{ args, livenessProbe }] = containers;
    const here = (word: string): string => word.replaceAll('/clips/', 'clips/').replaceAll('/tmp/', './');
    expect(grace).toBeGreaterThan(25);
    await shell.run('mgw batch enqueue clips.csv');
    const quick = ['--max-idle', '1s', '--poll-interval', '10ms'];
    const ran = await shell.run([...args.map(here), ...quick].map(quoted).join(' '));
    expect(ran.code, ran.stderr).toBe(0);
    expect(existsSync(join(shell.home, 'clips/clips/row-0.mp4'))).toBe(true);
    const probe = livenessProbe.exec.command.map(here).map(quoted).join(' ');
    expect((await shell.run(probe)).code).toBe(0);
    const then = Date.now() / 1000 - 1000;
    utimesSync(join(shell.home, 'alive'), then, then);
    expect((await shell.run(probe)).code).toBe(1);
  });
});
