/** Made by the build (`scripts/build/gallery-page.mjs`) of what is in `page/`. */
declare module 'virtual:gallery-page' {
  export const script: string;
  export const style: string;
}
