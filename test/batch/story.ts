import { writeFileSync } from 'node:fs';
import { delimiter } from 'node:path';
import { vi } from 'vitest';
import { renderVideo } from '../../src/sandbox/media/video.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder } from '../support/fresh-folder.ts';
import { program } from '../support/shell.ts';
import { openScene, type Scene } from './scene.ts';

/** A scene whose gateway makes a different film for each task. */
export interface Story extends Scene {
  /** Returns the Base64 image of each Protocol A submission, by prompt; undefined if the submission had none. */
  frames(): Map<string, string | undefined>;
  /** Returns the latest video of the given prompt. */
  film(prompt: string): Uint8Array;
  /** Returns the last frame of the given prompt's latest video, in Base64, as extracted by {@link installFrames}. */
  lastFrame(prompt: string): string;
  /** Returns the number of charges, by prompt. */
  charges(): Record<string, number>;
  /** Runs a command in a separate process, and kills the process at the `count`-th matching request. */
  killedAt(args: string[], match: RegExp, count?: number): Promise<void>;
}

/** Opens a story with its own gateway. */
export async function openStory(): Promise<Story> {
  const scene = await openScene();
  const { gateway, user } = scene;
  const films = new Map<string, Uint8Array>();
  gateway.videoOf = (prompt, id) => {
    const film =
      films.get(id) ?? renderVideo({ prompt: `${prompt} ${id}`, seconds: 0.25, width: 64, height: 64 });
    films.set(id, film);
    return film;
  };
  const filmOf = (prompt: string): Uint8Array => films.get(gateway.taskOf(prompt)) ?? Buffer.alloc(0);
  return {
    ...scene,
    frames: () => new Map(gateway.posts().map(({ body }) => frameIn(body))),
    film: filmOf,
    lastFrame: (prompt) => Buffer.concat([pixel, Buffer.from('last'), filmOf(prompt)]).toString('base64'),
    charges: () => Object.fromEntries([...gateway.charges].sort(([one], [other]) => (one < other ? -1 : 1))),
    killedAt: async (args, match, count = 1) => {
      const running = user.start(args);
      let seen = 0;
      gateway.before = ({ method, path }) => {
        if (!match.test(`${method} ${path}`)) return undefined;
        seen += 1;
        if (seen < count) return undefined;
        running.child.kill('SIGKILL');
        return running.result.then(() => undefined);
      };
      const { code } = await running.result;
      gateway.before = () => undefined;
      if (code !== 137) throw new Error(`not killed: exit ${code}`);
    },
  };
}

function frameIn(body: string): [string, string | undefined] {
  const { instances } = JSON.parse(body) as {
    instances: [{ prompt: string; image?: { bytesBase64Encoded: string } }];
  };
  const { prompt, image } = instances[0];
  return [prompt, image?.bytesBase64Encoded];
}

const pixel = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);

/**
 * Replaces ffmpeg with a script until the test ends. An extracted frame is a PNG followed by the position and the
 * video.
 */
export function installFrames(scene: Scene): void {
  writeFileSync(scene.at('pixel.png'), pixel);
  const ffmpeg = `
for word; do case "$word" in file:*) path=\${word#file:} ;; reverse) place=last ;; esac; done
[ -z "$path" ] || { cat '${scene.at('pixel.png')}'; printf %s "\${place:-first}"; cat "$path"; }`;
  install(scene, { ffmpeg });
}

/** Puts scripts first on the PATH of a user and of this process until the test ends. */
export function install({ user }: Scene, scripts: Record<string, string>): void {
  const folder = freshFolder();
  for (const [name, script] of Object.entries(scripts)) program(folder, name, script);
  user.env['PATH'] = `${folder}${delimiter}${process.env['PATH'] ?? ''}`;
  vi.stubEnv('PATH', user.env['PATH']);
  onEnd(() => void vi.unstubAllEnvs());
}

/** Returns a CSV of Protocol A clips. A row's default prompt is its id, and its image may be another row's frame. */
export function story(...rows: [id: string, image?: string, prompt?: string][]): string {
  const lines = rows.map(([id, image = '', prompt = id]) => `${id},a,veo-3,4,720p,true,${prompt},${image}`);
  return ['id,protocol,model,duration,resolution,audio,prompt,image', ...lines, ''].join('\n');
}

/** Returns a chain of `count` clips, each of which begins with the last frame of the previous clip. */
export function chain(count: number): [id: string, image?: string][] {
  return Array.from({ length: count }, (_, index) =>
    index === 0 ? ['s1'] : [`s${index + 1}`, `@s${index}:last`],
  );
}
